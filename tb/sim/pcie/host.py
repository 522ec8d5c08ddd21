"""A PCIe host with memory latency."""

import logging
import random
from dataclasses import dataclass

import cocotb
from cocotb.triggers import Event, Timer
from cocotbext.pcie.core import RootComplex

from weft.model.card.timing import HostTiming
from weft.tb.sim.pcie import lean_pcie
from weft.tb.sim.pcie.host_memory import HostMemory

PAYLOAD_CODE = {128: 0, 256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
ENUMERATE_TIMEOUT_NS = 20_000


@dataclass(frozen=True)
class HostConfig(HostTiming):
    """How a host behaves: what takes time, and the two that only concern the simulation.

    Writes are posted and do not wait for memory. With jitter, completions of different tags overtake each other. A
    stall holds RQ, RC, CQ or CC back, each on its own.

    Attributes
    ----------
    check_tlps : bool
        Let the model validate each TLP again at every hop; a fifth to a half of the time of a DMA-heavy run. The
        models' own asserts (tags, byte enables, 4 KiB) stay either way. The model has one switch for all hosts: the
        newest host decides.
    lean : bool
        Put faster parts into the model (:mod:`weft.tb.sim.pcie.lean_pcie`). A simulation whose hosts are all without
        them runs the model as its authors wrote it.
    """

    check_tlps: bool = False
    lean: bool = True


class _Watch(logging.Handler):
    """Fails the test when the model complains: it drops bad requests with a warning, and a bench would hang."""

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
    """Root complex with its own memory and a card behind it. Whatever the hard block's model is, this is the host.

    Parameters
    ----------
    config : HostConfig
    rng : random.Random
        Places memory and varies latency.

    Attributes
    ----------
    memory : HostMemory
    function : PciDevice
        The enumerated card, after :meth:`start`.
    bar : Window
        BAR0: ``await bar.read_dword(offset)``, ``await bar.write(offset, data)``.
    reading : list of int
        Addresses of the reads that wait for memory.
    reads, overtaken : int
        Reads that came, and those that were answered before an earlier one.
    agent : FaultAgent or None
        Answers some reads in the host's place.
    unplugged : Event
        While it is set nothing gets from host to card or back.
    strict : bool
        Whether a complaint of the model fails the test at once. All are kept in ``complaints``.
    """

    def __init__(self, config=None, rng=None):
        logging.getLogger("cocotb.pcie").setLevel(logging.ERROR)  # construction is talkative, enumeration warns
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
        self.reading, self.overtaken, self.agent, self.unplugged = [], 0, None, Event()
        self.reads = 0

    async def handle_mem_read_tlp(self, tlp):
        # Only the read service waits: a delay of the port would hold credits back, and one inside a memory region
        # would serve one request at a time.
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
        await super().handle_mem_read_tlp(tlp)

    async def handle_mem_write_tlp(self, tlp):
        if not self.unplugged.is_set():
            await super().handle_mem_write_tlp(tlp)

    def plug(self, device):
        """Put the card in; once, before :meth:`start`."""
        self.device = device
        self.make_port().connect(device)

    async def start(self, vectors=0):
        """Enumerate the card, enable it as bus master and program ``vectors`` MSI-X vectors."""
        device = self.device
        self.log.setLevel(logging.ERROR)  # scanning absent devices warns
        await self.enumerate(timeout=ENUMERATE_TIMEOUT_NS)
        function = self.function = self.find_device(device.functions[0].pcie_id)
        assert function is not None, "the card was not found on the bus"
        await function.enable_device()
        await function.set_master()
        await function.set_readrq(PAYLOAD_CODE[self.config.max_read_bytes])
        if vectors:
            granted = await function.alloc_irq_vectors(1, vectors)
            assert granted == vectors, f"{granted} MSI-X vectors granted, {vectors} wanted"
        self.bar = function.bar_window[0]
        for logger in (self.log, device.log):
            logger.setLevel(logging.WARNING)
            logger.addHandler(_Watch(self))
