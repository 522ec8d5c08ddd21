"""Hosts with a timed card."""

from collections.abc import Callable
from typing import Any

from weft.model.functional.host import FunctionalDevice
from weft.model.functional.memory import HostMemory
from weft.model.loop import EventLoop

from .card import TimedCard
from .timing import TIMING, edge


class WatchedMemory(HostMemory):
    """Host memory with observable DMA writes.

    Attributes
    ----------
    dma_watchers, dma_taps
        ``callable(address, length)`` before each of the card's writes, ``callable(address, data)`` after it.
    """

    def __init__(self, seed: int | str = 0) -> None:
        super().__init__(seed)
        self.dma_watchers: list[Callable[[int, int], object]] = []
        self.dma_taps: list[Callable[[int, bytes], object]] = []

    def dma(self) -> "_Dma":
        """Return the card's view of the memory."""
        return _Dma(self)


class _Dma:
    """Reads and watched writes of a :class:`WatchedMemory`."""

    def __init__(self, memory: WatchedMemory) -> None:
        self.watched, self.read, self.read_ahead = memory, memory.read, memory.read_ahead

    def write(self, address: int, data: bytes) -> None:
        memory = self.watched
        for watcher in memory.dma_watchers:
            watcher(address, len(data))
        memory.write(address, data)
        for tap in memory.dma_taps:
            tap(address, data)


class TimedDevice(FunctionalDevice):
    """Timed card as the driver's ``Device``: see :class:`~weft.model.card.card.TimedCard`.

    Register writes are posted: they take the driver no time, and reach the card in order, after the completions that
    are on the link. A read takes the driver the time of its round trip.

    Parameters
    ----------
    card_options
        Passed to :class:`~weft.model.card.card.TimedCard`.
    """

    memory_type, card_type = WatchedMemory, TimedCard
    memory: WatchedMemory
    card: TimedCard

    def __init__(self, loop: EventLoop, *, seed: int | str = 0, **card_options: Any) -> None:
        super().__init__(loop, seed=seed, **card_options)
        self.card.memory = self.memory.dma()
        self._written = 0.0     # time at which the newest register write reaches the card

    def write32(self, offset: int, value: int) -> None:
        self._post(offset, value & 0xFFFF_FFFF, 4)

    def write64(self, offset: int, value: int) -> None:
        self._post(offset, value, 8)

    def write_block(self, offset: int, data: bytes) -> None:
        self._post(offset, data, len(data), self.card.push)

    def _post(self, offset: int, value: int | bytes, size: int, write: Callable[..., object] | None = None) -> None:
        begin = self.card.pcie.down(size + TIMING.message_header_bytes)
        at = edge(max(begin + TIMING.register_write, self._written + TIMING.register_pace))
        self._written = at
        self.loop.call_at(at, write or self.card.write, offset, value)

    def read64(self, offset: int) -> int:
        self._pass(TIMING.register_read / 2)
        value = self.card.read(offset)
        self._pass(TIMING.register_read / 2)
        return value

    def read32(self, offset: int) -> int:
        return self.read64(offset) & 0xFFFF_FFFF

    def _pass(self, time_ns: float) -> None:
        """Block the driver for a time."""
        app = self._app()
        if app is None:
            self.loop.run(self.loop.now_ns + time_ns)
        else:
            app.sleep(time_ns, until_woken=False)
