"""Open card: the state that all contexts of a device share, from bring-up to stop."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

from weft.hdl.contract import abi

from ..device.bringup import disable_card, enable_card, reset_card, set_registers
from ..device.capabilities import Capabilities
from ..device.device import Device
from ..device.health import DeviceFatal
from ..device.index_pool import IndexPool
from ..device.local_keys import KeyTags, LocalKeys
from ..device.page_table import RangeAllocator
from ..engine.card_engine import CardEngine
from ..engine.card_lock import CardLock
from ..knitting.buffer import KnittingBuffer
from ..operation.mailbox_memory import MailboxMemory
from ..operation.memory import Memory
from ..queue.command import CommandError, CommandTimeout
from ..queue.page_writer import PageWriter
from ..terms.checks import unsigned
from ..terms.closing import Release
from ..terms.enums import EventType
from ..terms.errors import InvalidValue
from .config import ContextConfig
from .events import AsyncEvent
from .locking import locked

if TYPE_CHECKING:
    from .context import Context
    from .mr import MR

PD_BITS = 24


class Lending(Release):
    """Context manager of :meth:`Card.lending`."""

    __slots__ = ("_kept",)

    def __init__(self, kept: list[Callable[[], object]]) -> None:
        super().__init__()
        self._kept = kept

    def __exit__(self, *exception: object) -> None:
        kind = exception[0]
        if isinstance(kind, type) and issubclass(kind, CommandTimeout | DeviceFatal):
            self._kept.append(self.pop_all().close)
        else:
            self.close()


class Card:
    """Card that was brought up.

    Parameters
    ----------
    device : Device
    mac, ip : int
        Addresses of the card.
    config : ContextConfig or None

    Attributes
    ----------
    capabilities : Capabilities
    engine : CardEngine
        Protocol engine of the card.
    knitting : KnittingBuffer
    mrs : dict of int to MR
        Registered memory by index.
    contexts : dict of Context
        Contexts that use the card, as keys.
    page_writer : PageWriter
    kept : list
        Functions to call after a reset: see :meth:`lending`.

    Raises
    ------
    IncompatibleCard
        If magic or major version differ.
    ValueError
        If a setting is invalid, or the device is in use.
    """

    def __init__(self, device: Device, *, mac: int | None, ip: int | None, config: ContextConfig | None = None) -> None:
        self.device, self.mac, self.ip = device, unsigned("mac", mac, 48), unsigned("ip", ip, 32)
        self.config = config or ContextConfig()
        self.open = False
        self.config.check()
        self.capabilities = Capabilities.of(device)
        device.claim(self)
        try:
            self._open(device, self.config, self.capabilities)
        except BaseException:
            device.release(self)
            raise

    def _open(self, device: Device, config: ContextConfig, can: Capabilities) -> None:
        if config.reorder_distance > can.window_bits:
            raise InvalidValue(f"reorder_distance is {config.reorder_distance}; the window has {can.window_bits} bits")
        if config.extent_bytes > can.max_extent_bytes:
            raise InvalidValue(f"extent_bytes is {config.extent_bytes}; this card takes {can.max_extent_bytes} or less")
        if config.reset:
            reset_card(device)
        self.engine = CardEngine(device, config, mac=self.mac, ip=self.ip, max_qp=can.max_qp,
                                 inline_bytes=can.inline_bytes, pace_descriptors=can.pace_descriptors)
        self.mrs: dict[int, MR] = {}
        self.contexts: dict[Context, None] = {}
        self._pds = 0
        self.kept: list[Callable[[], object]] = []
        self.mr_indices = IndexPool(can.max_mr, "memory regions")
        self.pte_ranges = RangeAllocator(can.max_pte)
        self.key_tags, self.local_keys = KeyTags(config.random), LocalKeys(config.random)
        self.engine.lender = MailboxMemory(device, self.engine.commands, Memory(self.mrs, self.local_keys),
                                           indices=self.mr_indices, tags=self.key_tags, pte_ranges=self.pte_ranges,
                                           kept=self.kept)
        self.page_writer = PageWriter(device, self.engine.commands, self.kept)
        self._start()
        self.knitting = KnittingBuffer(
            device,
            self._announce_extent,
            extent_bytes=config.extent_bytes,
            max_extents=min(config.max_extents, can.max_extents),
            number_bits=can.block_number_bits,
            alpha=config.knitting_alpha,
        )
        self.engine.balancers.append(self.knitting.balance)
        self.engine.fatal_handlers.append(self._failed)
        self.open = True
        self._knit()

    # --------------------------------------------------------------------------------------- start

    def _start(self) -> None:
        """Configure a card that is out of reset, except for the contents of its tables."""
        self.device.enable_interrupts(max(abi.VECTOR.values()) + 1)
        set_registers(self.device, self.config, self.capabilities, status_block=self.engine.status.physical(0))
        self.engine.start()
        enable_card(self.device)
        self.engine.commands.call(abi.CommandOpcode.SET_NETWORK, mac=self.mac, ip=self.ip)

    @locked
    def reset(self) -> None:
        """Reset the card with whatever is in flight, and bring it up again.

        All QPs go to ERR and their requests are flushed; a QP has to be reset and connected again. Memory stays
        registered under its keys. Commands without a waiting caller are dropped.

        Raises
        ------
        TimeoutError
            If the card does not come out of reset.
        DeviceFatal
            If the card is gone.
        """
        self.check_open()
        reset_card(self.device)
        self.engine.forget()
        self.release_kept()
        self._start()
        self.knitting.extents.announce_again()
        self._knit()
        for mr in self.mrs.values():
            if mr.installed and not mr.closing:
                mr.install()

    def _failed(self, reason: str) -> None:
        """Stop a card that failed from accessing memory, and report the failure to all contexts."""
        try:
            reset_card(self.device)
            self.engine.stopped = True
        except DeviceFatal:
            self.engine.stopped = True     # a card that is gone accesses no memory
        except TimeoutError:
            pass
        for context in self.contexts:
            context.async_events.append(AsyncEvent(EventType.DEVICE_FATAL, context, reason))

    def _knit(self) -> None:
        """Wait until the card has confirmed the extents."""
        self.engine.run_until(lambda: not self.knitting.changing, self.engine.commands.timeout_ns)

    def _announce_extent(self, index: int, address: int, length: int, done: Callable[[], object]) -> None:
        def answered(response: SimpleNamespace) -> None:
            if response.status is not abi.CommandStatus.OK:
                raise CommandError(abi.CommandOpcode.EXTENT_SET, response.status)
            done()

        self.engine.commands.submit(abi.CommandOpcode.EXTENT_SET, answered, extent=index, address=address,
                                    length=length)

    def lending(self) -> "Lending":
        """Return a context manager with a :class:`Release` of the resources that commands of its block name.

        If a command stays unanswered, the card may use the resources until it is reset. They are freed only then.
        """
        return Lending(self.kept)

    def release_kept(self) -> None:
        """Free what unanswered commands named, after a reset."""
        while self.kept:
            self.kept.pop()()

    @property
    def lock(self) -> CardLock:
        """:class:`~weft.driver.engine.card_lock.CardLock` of the card."""
        return self.engine.lock

    def check_open(self) -> None:
        """Raise InvalidValue if the card is closed."""
        if not self.open:
            raise InvalidValue("the card is closed")

    # ------------------------------------------------------------------------------- small services

    def new_pd(self) -> int:
        """Return the number of a new protection domain: the first one after the last assigned number that is not in
        use."""
        while True:
            self._pds = self._pds % ((1 << PD_BITS) - 1) + 1
            if not any(pd.handle == self._pds for context in self.contexts for pd in context.pds):
                return self._pds

    @locked
    def send_raw(self, frame: bytes) -> None:
        """Send a raw Ethernet frame (without FCS)."""
        self.check_open()
        self.engine.nic.send(frame)
        self.engine.nic.flush()

    @locked
    def statistics(self) -> dict[str, int]:
        """Return the counters of the card by name."""
        self.check_open()
        with self.lending() as lent:
            buffer = self.device.alloc(-(-8 * len(abi.COUNTERS) // 64) * 64, align=4096)
            lent.callback(self.device.free, buffer)
            self.engine.commands.call(abi.CommandOpcode.STATISTICS, address=buffer.physical(0))
            data = buffer.read(0, 8 * len(abi.COUNTERS))
        return {name: int.from_bytes(data[8 * i : 8 * i + 8], "little") for i, (name, _) in enumerate(abi.COUNTERS)}

    # ------------------------------------------------------------------------------------------ end

    def stop(self) -> None:
        """Stop the card and free its memory; it must hold no objects any more."""
        self.open = False
        disable_card(self.device)
        self.engine.close()
        self.knitting.extents.close()
        self.page_writer.close()
        self.device.release(self)
