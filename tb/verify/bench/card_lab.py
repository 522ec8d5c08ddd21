"""Two cards of preset ``test``, brought up for measurements, with a cable without delay."""

from dataclasses import replace

from weft.driver.application.file_transfer import WINDOW, Endpoint, post_receives
from weft.driver.terms.enums import MTU
from weft.driver.verbs.context import ContextConfig
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.bench import leave
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.settings import SIDES
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.host import HostConfig

PRESET = "test"
SILENCE_NS = 1_000_000     # a transfer without a completion for this time has failed


class Lab(RtlPair):
    """Two cards brought up for measurements; in an ``async with`` block, whose end leaves the ``figures``.

    ``ring_log2`` has the logarithms of the rings' depths by side, see ``ContextConfig``.
    """

    def __init__(self, dut, settings, host=None, straddle=False):
        cable = LinkConfig(delay_ns=0)
        config = EnvConfig(cable, cable, host or HostConfig(), straddle=straddle)
        super().__init__(dut, config, ContextConfig(), card=PRESET, seed=bench_seed(), guarded=False, judged=False)
        self.dut, self.settings = dut, settings
        self.ring_log2 = dict.fromkeys(SIDES, 8)
        self.figures = {}

    def report_progress(self, phase, done=0, total=1):
        """Append a line to the progress file."""
        report_progress(self.settings["progress"], phase, done, total)

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, failure, *_):
        if failure is None:
            self.env.finish()
            leave(self.figures)

    async def start(self):
        self.report_progress("bringing hosts and cards up")
        for side in SIDES:
            self._configs[side] = replace(self._configs[side], ring_log2=self.ring_log2[side])
        await super().start()

    async def open_endpoints(self, length, pmtu, window=WINDOW, qps=1, **options):
        """Open an endpoint on each side, connect both, and post a receive on each QP; return ``{side: endpoint}``."""
        ends = {side: await self.call(Endpoint, self.contexts[side], length, window=window, qps=qps, **options)
                for side in SIDES}
        await self.connect(ends, path_mtu=MTU[f"MTU_{pmtu}"])
        for side in SIDES:
            await self.call(post_receives, ends[side])
        return ends

    async def close_endpoints(self, ends):
        """Close the endpoints."""
        for end in ends.values():
            await self.call(end.close)
