"""Captures of the frames of served hosts, for Wireshark: a frame lost between hosts is in the first capture only."""

from collections.abc import Callable
from pathlib import Path

from weft.model.impairments import Frame
from weft.model.link import Tap
from weft.model.loop import EventLoop
from weft.tb.app.serve.functional import FunctionalBackend
from weft.tb.sim.link.pcap import Captures


def capture(backend: FunctionalBackend, folder: str | Path | None) -> Captures:
    """Capture the frames of all hosts from now on: ``HOST.sent.pcap`` and ``HOST.arrived.pcap`` in ``folder``."""
    captures = Captures(folder)
    if folder is None:
        return captures
    ports = backend.switch.ports
    for host, device, mac in zip(backend.hosts, backend.devices, ports, strict=True):
        sent, arrived = captures.taps(host)
        device.transmit = _through(backend.loop, sent, device.transmit)
        ports[mac] = _through(backend.loop, arrived, ports[mac])
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

    def taps(self, direction: str) -> tuple[Tap | None, Tap | None]:
        """Return the taps of a link, ``"a_to_b"`` or ``"b_to_a"``; see :meth:`Captures.taps`."""
        return self._taps[direction[0]][0], self._taps[direction[-1]][1]
