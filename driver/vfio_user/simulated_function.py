"""PCI function of a simulated card, without its BAR: configuration space, memory and interrupts of the client."""

import abc
from collections import Counter
from collections.abc import Callable

from weft.hdl.contract.pci import PciFunction, configuration

from .config_space import ConfigSpace
from .dma import DmaMap
from .interrupts import Interrupts
from .messages import Irq, Region

ALL_ONES = 0xFF
REPORTS_MAX = 20


class SimulatedFunction(abc.ABC):
    """Function of a card, for :class:`~weft.driver.vfio_user.server.Server`. Subclasses have the card and its BAR 0.

    The client keeps the MSI-X table. Vectors wait in the pending bits while the function may not send them.

    Parameters
    ----------
    description : PciFunction
    report : callable(sentence)

    Attributes
    ----------
    config : ConfigSpace
    dma : DmaMap
    interrupts : Interrupts
    pending : int
        Bits of the vectors that wait.
    counters : Counter
        ``unsupported_requests``: accesses of the card to memory that the client did not map; ``resets``.
    """

    def __init__(self, description: PciFunction, report: Callable[[str], object] = lambda sentence: None) -> None:
        self._report, self._vectors = report, description.msix_vectors
        self.config = ConfigSpace(configuration(description), self.reset)
        self.regions: dict[int, int] = {Region.CONFIG: len(self.config), Region.BAR0: description.bars[0].size}
        self.dma, self.pending = DmaMap(), 0
        self.interrupts = Interrupts({Irq.MSIX: description.msix_vectors, Irq.ERR: 1}, self._send_pending)
        self.counters: Counter[str] = Counter()

    def report(self, sentence: str) -> None:
        """Report to the operator, a limited number of times: a machine can cause any number of reports."""
        self.counters["reports"] += 1
        if self.counters["reports"] <= REPORTS_MAX:
            self._report(sentence)

    # ------------------------------------------------------------------------------------------- client

    def region_read(self, region: int, offset: int, count: int) -> bytes:
        """Read from a region: see :meth:`weft.driver.vfio_user.server.Function.region_read`."""
        if region == Region.CONFIG:
            return self.config.read(offset, count)
        if self.config.memory_space:
            return self._bar_read(offset, count)
        return self._refused_read(count)

    def region_write(self, region: int, offset: int, data: bytes) -> None:
        """Write to a region: see :meth:`weft.driver.vfio_user.server.Function.region_write`."""
        if region == Region.CONFIG:
            self.config.write(offset, data)
            self._configured()
            self._send_pending()
        elif self.config.memory_space:
            self._bar_write(offset, data)
        else:
            self._refuse()

    def reset(self) -> None:
        """Reset card and configuration space. The client's memory and eventfds stay."""
        self.config.reset()
        self.pending = 0
        self.counters["resets"] += 1
        self._renew()

    def disconnected(self) -> None:
        """Reset the card of a client that left, whose host is off; then release its memory and eventfds."""
        self.reset()
        self.dma.clear()
        self.interrupts.close()

    def _refused_read(self, count: int) -> bytes:
        """Return the result of a read that the card rejects."""
        self._refuse()
        return bytes([ALL_ONES]) * count

    @abc.abstractmethod
    def _bar_read(self, offset: int, count: int) -> bytes:
        """Read BAR 0."""

    @abc.abstractmethod
    def _bar_write(self, offset: int, data: bytes) -> None:
        """Write BAR 0."""

    @abc.abstractmethod
    def _refuse(self) -> None:
        """Count an access of BAR 0 that has no effect."""

    @abc.abstractmethod
    def _renew(self) -> None:
        """Reset the card. The configuration space has been reset."""

    def _configured(self) -> None:
        """Process a write of the configuration space."""
        return

    # ------------------------------------------------------------------------------------------ card

    def unsupported(self, reason: str) -> None:
        """Count an Unsupported Request that the card received."""
        if not self.counters["unsupported_requests"]:
            self.report(f"unsupported request of the card: {reason}")
        self.counters["unsupported_requests"] += 1
        self.config.received_master_abort()

    def raise_vector(self, vector: int) -> None:
        """Send a vector, or keep it pending while that is impossible."""
        if vector < self._vectors:
            self.pending |= 1 << vector
            self._send_pending()

    def _send_pending(self) -> None:
        if self.pending and self.config.sends_msix:
            for vector in range(self._vectors):
                if self.pending >> vector & 1 and self.interrupts.signal(Irq.MSIX, vector):
                    self.pending &= ~(1 << vector)
