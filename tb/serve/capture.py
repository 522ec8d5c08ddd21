"""Captures of what served hosts send and get, for Wireshark: what is lost between them is in the first alone."""

from weft.tb.world.pcap import Captures


def capture(world, folder):
    """Write ``HOST.sent.pcap`` and ``HOST.arrived.pcap`` for each host of a
    :class:`~weft.tb.serve.functional.FunctionalWorld` from now on; the :class:`Captures`."""
    captures = Captures(folder)
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
