"""Two cards with open drivers for the benches of bad input: frames from outside, counters, error reports, guards."""

import random
from dataclasses import replace
from types import SimpleNamespace

from cocotb.task import bridge, resume
from cocotb.triggers import Timer

from weft.driver.verbs.context import Context, ContextConfig
from weft.hdl import abi
from weft.hdl.params import preset
from weft.tb.flow.simulate import bench_seed
from weft.tb.judge.dma_guard import DmaGuard
from weft.tb.world.host import HostConfig
from weft.tb.world.link import LinkConfig
from weft.tb.world.two_cards import SIDES
from weft.tb.world.two_hosts import EnvConfig, TwoCards

MAC = {"a": 0x02_00_00_00_00_0A, "b": 0x02_00_00_00_00_0B}
IP = {"a": 0x0A_00_00_01, "b": 0x0A_00_00_02}
DELAY_NS = 300
READ_LATENCY_NS = 300
SETTLE_NS = 400           # from the last byte of a frame to its report in host memory
LOOK_NS, ATTEMPTS = 1_000, 2_000
ROUNDS = 3                # of progress: one takes a ring's entries up to its end at most
DROPS = [name for name, _ in abi.COUNTERS if name.startswith("drop_")]
EVENT_FIELDS = ("reason", "qpn", "generation", "psn", "va", "key", "length", "opcode", "src_ip", "retransmission")


class Spy:
    """Keeps the event reports of a QP, and hands them on."""

    def __init__(self, qp, kept):
        self._take, self._kept = qp.engine.on_report, kept
        qp.engine.on_report = self

    def __call__(self, kind, report):
        if kind in (abi.ReportKind.ERROR, abi.ReportKind.TX_ERROR):
            self._kept.append(SimpleNamespace(kind=kind, **{name: getattr(report, name) for name in EVENT_FIELDS}))
        self._take(kind, report)


class HostilePair:
    """:class:`TwoCards` with a driver and a :class:`DmaGuard` on each side.

    Parameters
    ----------
    dut
    config : ContextConfig, optional
        Of both drivers.
    delay_ns : float
        Of the link, one way.

    Attributes
    ----------
    context, guard : dict of side
    raw : dict of side to list of bytes
        Raw frames that the drivers handed out.
    errors : list
        ERROR and TX_ERROR reports of the QPs given to :meth:`spy`.
    """

    def __init__(self, dut, config=None, delay_ns=DELAY_NS):
        link = LinkConfig(delay_ns=delay_ns)
        self.env = TwoCards(dut, EnvConfig(a_to_b=link, b_to_a=link, host=HostConfig(read_latency_ns=READ_LATENCY_NS),
                                           vectors=preset("test").msix_vectors), seed=bench_seed())
        self._configs = {side: replace(config or ContextConfig(), random=random.Random(f"{bench_seed()}/{side}/driver"))
                         for side in SIDES}
        self.context, self.guard, self.raw, self.errors = {}, {}, {side: [] for side in SIDES}, []
        self._seen = {}

    async def start(self):
        await self.env.start()
        for side in SIDES:
            await bridge(self._open)(side)

    def _open(self, side):
        context = self.context[side] = Context(self.env.device(side), mac=MAC[side], ip=IP[side],
                                               config=self._configs[side])
        self.guard[side] = DmaGuard(self.env.host(side), context)
        context.raw_frame_handlers.append(lambda frame, entry: self.raw[side].append(bytes(frame)))
        self.new_drops(side)

    def spy(self, qp):
        """Keep the error reports of ``qp``."""
        Spy(qp, self.errors)

    # The following are called from the thread of a side, as the driver is.

    @resume
    async def inject(self, side, frames, bad=False):
        """Frames for the MAC of ``side``, and time until their consequences are in host memory."""
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
        """Serve ``side`` until something holds that no interrupt tells of: what the other side's thread has done."""
        context = self.context[side]
        for _ in range(ATTEMPTS):
            context.progress()
            if condition():
                return
            context.wait(LOOK_NS)
        raise TimeoutError("the other side never came so far")

    def new_drops(self, side):
        """What was refused since the last call: counter name (without ``drop_``) to number."""
        counters = self.context[side].statistics()
        before = self._seen.get(side, counters)
        self._seen[side] = counters
        return {name.removeprefix("drop_"): counters[name] - before[name]
                for name in DROPS if counters[name] != before[name]}

    def take_errors(self, side):
        """Error reports since the last call."""
        self._progress(side)
        found, self.errors[:] = list(self.errors), []
        return found

    def take_raw(self, side):
        """Raw frames since the last call."""
        self._progress(side)
        found, self.raw[side][:] = list(self.raw[side]), []
        return found

    def _progress(self, side):
        for _ in range(ROUNDS):
            self.context[side].progress()

    def finish(self):
        """Close the contexts' guards and the environment. Fails if a card wrote what it may not."""
        for side in SIDES:
            self.guard[side].check()
        self.env.finish()
