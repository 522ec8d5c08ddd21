"""Captures of what served hosts send and get, for Wireshark: what is lost between them is in the first alone."""

from weft.tb.sim.link.pcap import Captures


def capture(world, folder):
    """Write ``HOST.sent.pcap`` and ``HOST.arrived.pcap`` for each host of a
    :class:`~weft.tb.app.serve.functional.FunctionalWorld` from now on, unless there is no folder; the
    :class:`Captures`."""
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
    """``take``, whose frames are written before."""
    def taken(frame, *at):
        write(at[0] if at else loop.now_ns, bytes(frame))
        take(frame, *at)
    return taken


class CapturesOfCards:
    """The same for two cards of RTL: the links between them, by the names of their hosts.

    Parameters
    ----------
    folder : path or None
    names : dict of str to str
        Of the hosts, by side.
    """

    def __init__(self, folder, names):
        captures = Captures(folder)
        self._taps = {side: captures.taps(name) for side, name in names.items()}
        self.close = captures.close

    def taps(self, way):
        """See :meth:`Captures.taps`, for ``"a_to_b"`` or ``"b_to_a"``."""
        return self._taps[way[0]][0], self._taps[way[-1]][1]
