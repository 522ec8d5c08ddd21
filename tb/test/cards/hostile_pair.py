"""Two cards with open drivers for benches of bad input: injected frames, counters, error reports, guards."""

from types import SimpleNamespace

from cocotb.task import resume
from cocotb.triggers import Timer

from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_cards import SIDES
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.host import HostConfig

DELAY_NS = 300
READ_LATENCY_NS = 300
SETTLE_NS = 400           # from the last byte of a frame to its report in host memory
LOOK_NS, ATTEMPTS = 1_000, 2_000
ROUNDS = 3                # of progress: one reads a ring at most up to its wrap
DROPS = [name for name, _ in abi.COUNTERS if name.startswith("drop_")]
EVENT_FIELDS = ("reason", "qpn", "generation", "psn", "va", "key", "length", "opcode", "src_ip", "retransmission")


class Spy:
    """Records the event reports of a QP, and passes them on."""

    def __init__(self, qp, kept):
        self._take, self._kept = qp.engine.on_report, kept
        qp.engine.on_report = self

    def __call__(self, kind, report):
        if kind in (abi.ReportKind.ERROR, abi.ReportKind.TX_ERROR):
            self._kept.append(SimpleNamespace(kind=kind, **{name: getattr(report, name) for name in EVENT_FIELDS}))
        self._take(kind, report)


class HostilePair(RtlPair):
    """:class:`~weft.tb.sim.pair.rtl_pair.RtlPair` that records reports and injects frames into its MACs.

    Parameters
    ----------
    dut
    config : ContextConfig, optional
        Of both drivers.
    delay_ns : float
        Of the link, one way.

    Attributes
    ----------
    raw : dict of side to list of bytes
        Raw frames that the drivers delivered.
    errors : list
        ERROR and TX_ERROR reports of the QPs given to :meth:`spy`.
    """

    def __init__(self, dut, config=None, delay_ns=DELAY_NS):
        link = LinkConfig(delay_ns=delay_ns)
        super().__init__(dut, EnvConfig(a_to_b=link, b_to_a=link, host=HostConfig(read_latency_ns=READ_LATENCY_NS),
                                        vectors=preset("test").msix_vectors), config or ContextConfig(),
                         seed=bench_seed(), judged=False)
        self.raw, self.errors, self._seen = {side: [] for side in SIDES}, [], {}

    def _open(self, side):
        super()._open(side)
        self.contexts[side].raw_frame_handlers.append(lambda frame, entry: self.raw[side].append(bytes(frame)))
        self.new_drops(side)

    def spy(self, qp):
        """Record the error reports of ``qp``."""
        Spy(qp, self.errors)

    # The following methods run in the thread of a side, like the driver.

    @resume
    async def inject(self, side, frames, bad=False):
        """Send frames to the MAC of ``side``, and wait until their effects are in host memory."""
        mac = self.env.sides[side].mac_rx
        for frame in frames:
            mac.receive(frame, bad)
        while mac.waiting:
            await Timer(50, "ns")
        await Timer(SETTLE_NS, "ns")

    @resume
    async def sleep(self, nanoseconds):
        await Timer(nanoseconds, "ns")

    def until(self, side, condition):
        """Serve ``side`` until a condition without interrupt holds, such as progress of the other side's thread."""
        context = self.contexts[side]
        for _ in range(ATTEMPTS):
            context.progress()
            if condition():
                return
            context.wait(LOOK_NS)
        raise TimeoutError("the other side never came so far")

    def new_drops(self, side):
        """Return the drops since the last call: counter name (without ``drop_``) to number."""
        counters = self.contexts[side].statistics()
        before = self._seen.get(side, counters)
        self._seen[side] = counters
        return {name.removeprefix("drop_"): counters[name] - before[name]
                for name in DROPS if counters[name] != before[name]}

    def take_errors(self, side):
        """Return the error reports since the last call."""
        self._progress(side)
        found, self.errors[:] = list(self.errors), []
        return found

    def take_raw(self, side):
        """Return the raw frames since the last call."""
        self._progress(side)
        found, self.raw[side][:] = list(self.raw[side]), []
        return found

    def _progress(self, side):
        for _ in range(ROUNDS):
            self.contexts[side].progress()

    def finish(self):
        """Close the contexts' guards and the environment. Fails if a card wrote to memory that it may not write."""
        for side in SIDES:
            self.guards[side].check()
        self.env.finish()
