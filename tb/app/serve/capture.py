"""Captures of the frames of served hosts, for Wireshark: a frame lost between hosts is in the first capture only."""

from collections.abc import Callable
from pathlib import Path

from weft.model.impairments import Frame
from weft.model.link import Tap
from weft.model.loop import EventLoop
from weft.tb.app.serve.functional import FunctionalWorld
from weft.tb.sim.link.pcap import Captures


def capture(world: FunctionalWorld, folder: str | Path | None) -> Captures:
    """Capture the frames of all hosts from now on: ``HOST.sent.pcap`` and ``HOST.arrived.pcap`` in ``folder``."""
    captures = Captures(folder)
    if folder is None:
        return captures
    ports = world.switch.ports
    for host, device, mac in zip(world.hosts, world.devices, ports, strict=True):
        sent, arrived = captures.taps(host)
        device.transmit = _through(world.loop, sent, device.transmit)
        ports[mac] = _through(world.loop, arrived, ports[mac])
    return captures


def _through(loop: EventLoop, write: Tap, take: Callable[..., object]) -> Callable[..., None]:
    """Return a function that writes a frame, then passes it to ``take``."""
    def taken(frame: Frame, *at: float) -> None:
        write(at[0] if at else loop.now_ns, bytes(frame))
        take(frame, *at)
    return taken


class CapturesOfCards:
    """Captures of the links between two cards of RTL; ``names``: those of the hosts, by side."""

    def __init__(self, folder: str | Path | None, names: dict[str, str]) -> None:
        captures = Captures(folder)
        self._taps = {side: captures.taps(name) for side, name in names.items()}
        self.close = captures.close

    def taps(self, way: str) -> tuple[Tap | None, Tap | None]:
        """Return the taps of a link, ``"a_to_b"`` or ``"b_to_a"``; see :meth:`Captures.taps`."""
        return self._taps[way[0]][0], self._taps[way[-1]][1]
