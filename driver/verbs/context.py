"""Context: a program's handle of an open card."""

import collections
import contextlib
import threading
import time
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from weft.hdl.contract import abi

from ..device.capabilities import Capabilities, IncompatibleCard
from ..device.device import Device
from ..device.health import DeviceFatal
from ..device.index_pool import IndexPool
from ..device.local_keys import KeyTags, LocalKeys
from ..device.page_table import RangeAllocator
from ..engine.card_engine import CardEngine
from ..engine.card_lock import CardLock
from ..engine.neighbours import Neighbours
from ..engine.qp_table import QpTable
from ..knitting.buffer import KnittingBuffer
from ..queue.command import CommandError, CommandQueue, CommandTimeout
from ..queue.host_qpns import HostQpns
from ..queue.page_writer import PageWriter
from ..queue.ring import CardToHostRing, HostToCardRing
from ..terms.checks import instance
from ..terms.closing import Closing
from ..terms.errors import InvalidValue, PyverbsUserError
from .card import Card, Lending
from .closing_order import abandon_all, end_all, end_mine, forget_mine
from .config import ContextConfig
from .device_list import open_card
from .events import AsyncEvent
from .queries import Queries

if TYPE_CHECKING:
    from .cq import CQ, CompChannel
    from .mr import MR
    from .pd import PD

TURN_S = 1e-5           # time for which the progress thread releases the lock, so that other threads can take it
IDLE_NS = 1_000_000     # longest wait of the progress thread
UNCONFIRMED = CommandError, CommandTimeout, DeviceFatal, TimeoutError     # the card does not confirm an end
__all__ = ["Context", "ContextConfig", "DeviceFatal", "IncompatibleCard"]


def _of(path: str) -> Any:
    """Return a property that is an alias of an attribute of an attribute."""
    return property(attrgetter(path))


class Context(Queries, Closing):
    """Open device.

    All contexts that a program opens by the same ``name`` of :func:`~weft.driver.verbs.device_list.get_device_list`
    share a card. With a ``device`` of the program, the card belongs to this context alone.

    Parameters
    ----------
    device : Device or None
    name : str or None
    mac, ip : int
        Addresses of the card, with ``device``.
    config : ContextConfig or None

    Attributes
    ----------
    card : Card
        ``device, mac, ip, config, capabilities, engine, knitting, mrs, statistics(), send_raw()`` and ``reset()`` of
        the context are those of the card; ``commands, qps, rings, counts, neighbours, raw_frame_handlers, host_qpns``
        are those of its engine.
    pds, cqs, channels : dict
        Objects of the context as keys, oldest first.
    leaving : bool
        The card has not confirmed the end of the context. Its reset, or that of the last other context, completes it.
    async_events : deque of AsyncEvent

    Raises
    ------
    IncompatibleCard
        If magic or major version differ.
    InvalidValue
        If a setting is invalid, or another context uses the device.
    PyverbsUserError
        If neither ``device`` nor ``name`` is given.
    """

    device: Device = _of("card.device")
    mac: int = _of("card.mac")
    ip: int = _of("card.ip")
    config: ContextConfig = _of("card.config")
    capabilities: Capabilities = _of("card.capabilities")
    engine: CardEngine = _of("card.engine")
    knitting: KnittingBuffer = _of("card.knitting")
    mrs: "dict[int, MR]" = _of("card.mrs")
    kept: list[Callable[[], object]] = _of("card.kept")
    mr_indices: IndexPool = _of("card.mr_indices")
    pte_ranges: RangeAllocator = _of("card.pte_ranges")
    page_writer: PageWriter = _of("card.page_writer")
    key_tags: KeyTags = _of("card.key_tags")
    local_keys: LocalKeys = _of("card.local_keys")
    lending: Callable[[], Lending] = _of("card.lending")
    new_pd: Callable[[], int] = _of("card.new_pd")
    send_raw: Callable[[bytes], None] = _of("card.send_raw")
    statistics: Callable[[], dict[str, int]] = _of("card.statistics")
    reset: Callable[[], None] = _of("card.reset")
    lock: CardLock = _of("card.engine.lock")
    commands: CommandQueue = _of("card.engine.commands")
    qps: QpTable = _of("card.engine.qps")
    rings: dict[abi.Ring, HostToCardRing | CardToHostRing] = _of("card.engine.rings")
    counts: collections.Counter[str] = _of("card.engine.counts")
    neighbours: Neighbours = _of("card.engine.neighbours")
    raw_frame_handlers: list[Callable[[bytes], object]] = _of("card.engine.raw_frame_handlers")
    transmitting: bool = _of("card.engine.transmitting")
    host_qpns: HostQpns = _of("card.engine.host_qpns")

    def __init__(self, device: Device | None = None, *, name: str | bytes | None = None, mac: int | None = None,
                 ip: int | None = None, config: ContextConfig | None = None, attr: object = None) -> None:
        if name is not None:
            instance("name", name, str, bytes)
        if device is not None:
            self.card = Card(device, mac=mac, ip=ip, config=config)
        elif name is not None:
            self.card = open_card(name)
        else:
            raise PyverbsUserError("Device name must be provided")
        self._name = name
        self.pds: dict[PD, None] = {}
        self.cqs: dict[CQ, None] = {}
        self.channels: dict[CompChannel, None] = {}
        self.async_events: collections.deque[AsyncEvent] = collections.deque()
        self.leaving = False
        self.card.contexts[self] = None
        self._thread: threading.Thread | None = None

    @property
    def open(self) -> bool:
        return self in self.card.contexts

    @property
    def name(self) -> str | bytes | None:
        return self._name

    def check_open(self) -> None:
        """Raise InvalidValue if the context is closed."""
        if not self.open:
            raise InvalidValue("the context is closed")

    # ------------------------------------------------------------------------------------ progress

    def progress(self) -> bool:
        """Do one round of all work of the driver, without waiting; return true if something happened."""
        card = self.card
        engine = card.engine
        if self in card.contexts and engine.rests():
            return False
        lock = engine.lock
        if not lock.acquire(False):
            lock.wait()
        try:
            if self not in card.contexts:
                self.check_open()
            return engine.round()
        finally:
            lock.release()

    def wait(self, timeout_ns: float) -> bool:
        """Wait: see :meth:`~weft.driver.engine.card_engine.CardEngine.wait`."""
        with self.lock:
            self.check_open()
            return self.engine.wait(timeout_ns)

    def run_until(self, condition: Callable[[], object], timeout_ns: int | None = None) -> None:
        """Make progress until a condition holds: see :meth:`~weft.driver.engine.card_engine.CardEngine.run_until`."""
        self.check_open()
        self.engine.run_until(condition, timeout_ns)

    def serve(self, timeout_ns: int) -> None:
        """Answer the peers for ``timeout_ns``; enough for a program that only lets peers access its memory."""
        deadline = self.device.now_ns() + timeout_ns
        while (left := deadline - self.device.now_ns()) > 0:
            if not self.progress():
                self.wait(left)

    def start_progress(self) -> None:
        """Start a thread that makes progress until the context is closed.

        The peers get answers then, whatever the program does. Simulated devices do not need the thread: for them, call
        :meth:`serve` in a separate thread.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_going, name=f"progress of {self.name!r}", daemon=True)
            self._thread.start()

    def _keep_going(self) -> None:
        with contextlib.suppress(DeviceFatal):      # threads that wait for the card get the exception, too
            while self.open:
                with self.lock:
                    if self.open and not self.engine.progress():
                        self.engine.wait(IDLE_NS)
                if self.lock.wanted:
                    time.sleep(TURN_S)

    def get_async_event(self, timeout_ns: int | None = None) -> AsyncEvent:
        """Wait for an :class:`~weft.driver.verbs.events.AsyncEvent` and return it.

        Raises
        ------
        TimedOut
        """
        with self.lock:
            self.engine.listeners += 1
            try:
                self.run_until(lambda: self.async_events, timeout_ns)
            finally:
                self.engine.listeners -= 1
            return self.async_events.popleft()

    # ------------------------------------------------------------------------------------------ end

    def close(self) -> None:
        """Destroy all objects of the context: QPs first, then MRs and PDs, then CQs and channels, each oldest first.

        The last context of a card stops the card and frees its memory. A card that does not answer any more is reset
        instead.

        Raises
        ------
        TimeoutError
            If the card does not come out of reset: it may still use all of its memory, and nothing is freed.
        CommandError, CommandTimeout, DeviceFatal, TimeoutError
            If a card that other contexts use does not answer: see :attr:`leaving`. The call may be repeated.
        """
        with self.lock:
            if self.open:
                self._close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _close(self) -> None:
        if any(not other.leaving for other in self.card.contexts if other is not self):
            self._leave()
        else:
            try:
                end_all(self)
            except UNCONFIRMED:
                abandon_all(self)
            self.card.stop()
        del self.card.contexts[self]

    def _leave(self) -> None:
        """Destroy all objects of the context, now or at a reset of the card."""
        try:
            end_mine(self)
        except UNCONFIRMED:
            if not self.leaving:
                self.leaving = True
                self.card.kept.append(self._forget)
            raise
        if self.leaving:
            self.card.kept.remove(self._forget)

    def _forget(self) -> None:
        forget_mine(self)
        del self.card.contexts[self]
