"""A PCIe host with memory latency."""

import logging
import random
from dataclasses import dataclass

import cocotb
from cocotb.triggers import Event, Timer
from cocotbext.pcie.core import RootComplex
from cocotbext.pcie.core.tlp import Tlp

from weft.model.card.timing import HostTiming
from weft.tb.sim.pcie import lean_pcie
from weft.tb.sim.pcie.host_memory import HostMemory

PAYLOAD_CODE = {128: 0, 256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
ENUMERATE_TIMEOUT_NS = 20_000


@dataclass(frozen=True)
class HostConfig(HostTiming):
    """Timing of a host, and two options that affect only the simulation.

    Writes are posted and do not wait for memory. With jitter, completions of different tags overtake each other. A
    stall pauses RQ, RC, CQ or CC, each independently.

    Attributes
    ----------
    check_tlps : bool
        Validate each TLP in the model again at every hop; this takes a fifth to a half of the time of a DMA-heavy
        run. The models' asserts (tags, byte enables, 4 KiB) stay active either way. The model has one switch for all
        hosts: the newest host decides.
    lean : bool
        Replace parts of the model with faster ones (:mod:`weft.tb.sim.pcie.lean_pcie`). A simulation in which no host
        has this option runs the unmodified model.
    """

    check_tlps: bool = False
    lean: bool = True


class _Watch(logging.Handler):
    """Log handler that fails the test on a warning: the model drops bad requests with one, and a bench would hang."""

    def __init__(self, host):
        super().__init__(logging.WARNING)
        self._host = host

    def emit(self, record):
        self._host.complaints.append(record.getMessage())
        if self._host.strict:
            cocotb.start_soon(self._fail(record.getMessage()))

    @staticmethod
    async def _fail(message):
        raise AssertionError(f"the PCIe host complains: {message}")


class Host(RootComplex):
    """Root complex with memory and a card. It works with either model of the hard block.

    ``rng`` is the source of memory addresses and latency variation.

    Attributes
    ----------
    function : PciDevice
        The enumerated card, after :meth:`start`.
    bar : Window
        BAR0: ``await bar.read_dword(offset)``, ``await bar.write(offset, data)``.
    reading : list of int
        Addresses of the reads that wait for memory.
    reads, overtaken : int
        Number of reads, and of those whose response overtook an earlier one's.
    agent : FaultAgent or None
        Responds to some reads instead of the host.
    unplugged : Event
        While it is set, no packet crosses the link in either direction.
    strict : bool
        Fail the test at once if the model logs a warning. All warnings are kept in ``complaints``.
    """

    def __init__(self, config=None, rng=None):
        logging.getLogger("cocotb.pcie").setLevel(logging.ERROR)  # construction logs much, enumeration warns
        self.config = config or HostConfig()
        if self.config.lean:
            lean_pcie.install(check_tlps=self.config.check_tlps)
        super().__init__()
        self.rng = rng or random.Random(0)
        self.strict, self.complaints = True, []
        self.max_payload_size = PAYLOAD_CODE[self.config.max_payload_bytes]
        self.max_read_request_size = PAYLOAD_CODE[self.config.max_read_bytes]
        self.split_on_all_rcb = self.config.split_completions
        self.memory = HostMemory(self, self.rng)
        self.device = self.function = self.bar = None
        self.reading, self.reads, self.overtaken, self.agent, self.unplugged = [], 0, 0, None, Event()

    async def handle_mem_read_tlp(self, tlp):
        # Only this read waits: a delay of the port would hold credits back, and a delay inside a memory region would
        # serialize the requests.
        cocotb.start_soon(self._serve_read(tlp))

    async def _serve_read(self, tlp):
        config, rng = self.config, self.rng
        wait = config.read_latency_ns * (1 + config.read_jitter * rng.uniform(-1, 1))
        if config.read_tail and rng.random() < config.read_tail:
            wait += config.read_tail_ns
        self.reading.append(tlp.address)
        self.reads += 1
        if wait > 0:
            await Timer(round(wait * 1000), "ps")
        self.overtaken += self.reading[0] != tlp.address
        self.reading.remove(tlp.address)
        if self.unplugged.is_set():
            return
        if self.agent is not None and await self.agent.answer(tlp):
            return
        refusal = self.refusal(tlp)
        if refusal is None:
            await super().handle_mem_read_tlp(tlp)
        else:
            await self.send(refusal)

    def refusal(self, tlp):
        """Return the error completion of a read of memory that is not there, or None."""
        if self.memory.absent(tlp.address, 4 * tlp.length):
            return Tlp.create_ca_completion_for_tlp(tlp, lean_pcie.ROOT_ID)
        return None

    async def handle_mem_write_tlp(self, tlp):
        if not self.unplugged.is_set():
            await super().handle_mem_write_tlp(tlp)

    def plug(self, device):
        """Connect the card; once, before :meth:`start`."""
        self.device = device
        self.make_port().connect(device)

    async def start(self, vectors=0):
        """Enumerate the card, enable it as bus master and program ``vectors`` MSI-X vectors."""
        self.log.setLevel(logging.ERROR)  # scanning absent devices warns
        await self.enumerate(timeout=ENUMERATE_TIMEOUT_NS)
        function = self.function = self.find_device(self.device.functions[0].pcie_id)
        assert function is not None, "the card was not found on the bus"
        await function.enable_device()
        await function.set_master()
        await function.set_readrq(PAYLOAD_CODE[self.config.max_read_bytes])
        if vectors:
            granted = await function.alloc_irq_vectors(1, vectors)
            assert granted == vectors, f"{granted} MSI-X vectors granted, {vectors} wanted"
        self.bar = function.bar_window[0]
        for logger in (self.log, self.device.log):
            logger.setLevel(logging.WARNING)
            logger.addHandler(_Watch(self))
