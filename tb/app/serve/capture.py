"""Captures of the frames of served hosts, for Wireshark: a frame lost between hosts is in the first capture only."""

from weft.tb.sim.link.pcap import Captures


def capture(world, folder):
    """Capture the frames of all hosts of a :class:`~weft.tb.app.serve.functional.FunctionalWorld` from now on.

    The files are ``HOST.sent.pcap`` and ``HOST.arrived.pcap``; none are written if ``folder`` is None. Return the
    :class:`Captures`.
    """
    captures = Captures(folder)
    if folder is None:
        return captures
    for host, context, mac in zip(world.hosts, world.contexts, world.switch.ports, strict=True):
        sent, arrived = captures.taps(host)
        device, ports = context.device, world.switch.ports
        device.transmit = _through(world.loop, sent, device.transmit)
        ports[mac] = _through(world.loop, arrived, ports[mac])
    return captures


def _through(loop, write, take):
    """Return a function that writes a frame, then passes it to ``take``."""
    def taken(frame, *at):
        write(at[0] if at else loop.now_ns, bytes(frame))
        take(frame, *at)
    return taken


class CapturesOfCards:
    """Captures of the links between two cards of RTL, by the names of their hosts.

    Parameters
    ----------
    folder : path or None
    names : dict of str to str
        Names of the hosts, by side.
    """

    def __init__(self, folder, names):
        captures = Captures(folder)
        self._taps = {side: captures.taps(name) for side, name in names.items()}
        self.close = captures.close

    def taps(self, way):
        """Return the taps of a link, ``"a_to_b"`` or ``"b_to_a"``; see :meth:`Captures.taps`."""
        return self._taps[way[0]][0], self._taps[way[-1]][1]
