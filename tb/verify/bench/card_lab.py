"""Two cards of preset ``test`` brought up, on a cable without length, for measurements."""

import random

import cocotb
from cocotb.task import bridge

from weft.driver.application.file_transfer import WINDOW, Endpoint, post_receives
from weft.driver.terms.enums import MTU
from weft.driver.verbs.context import Context, ContextConfig
from weft.hdl.contract.params import preset
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.progress import tell
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pair.two_cards import SIDES
from weft.tb.sim.pair.two_hosts import EnvConfig, TwoCards
from weft.tb.sim.pcie.host import HostConfig

PRESET = "test"
MACS = {"a": 0x02_00_00_00_00_0A, "b": 0x02_00_00_00_00_0B}
IP = {"a": 0x0A_00_00_01, "b": 0x0A_00_00_02}
PEER = {"a": "b", "b": "a"}
SILENCE_NS = 1_000_000     # a transfer without a completion for so long has failed


class Lab:
    """Two cards brought up, and what is measured on them.

    Parameters
    ----------
    dut
    settings : dict
    host : HostConfig, optional
    straddle : bool
        Of the cards (``CardParams.straddle``).

    Attributes
    ----------
    env : TwoCards
    contexts : dict of side
    figures : dict
    ring_log2 : dict of side
        Of the rings' depths, see ``ContextConfig``.
    """

    def __init__(self, dut, settings, host=None, straddle=False):
        self.dut, self.settings = dut, settings
        self.ring_log2 = dict.fromkeys(SIDES, 8)
        cable = LinkConfig(delay_ns=0)
        config = EnvConfig(cable, cable, host or HostConfig(), vectors=preset(PRESET).msix_vectors, straddle=straddle)
        self.env = TwoCards(dut, config, seed=bench_seed())
        self.contexts = {}
        self.figures = {}

    def tell(self, phase, done=0, total=1):
        """A line of progress."""
        tell(self.settings["progress"], phase, done, total)

    async def start(self):
        self.tell("enumerating the PCIe hosts")
        await self.env.start()
        self.tell("bringing the cards up")
        opening = {side: cocotb.start_soon(bridge(self._open)(side)) for side in SIDES}
        self.contexts = {side: await task for side, task in opening.items()}

    def _open(self, side):
        config = ContextConfig(ring_log2=self.ring_log2[side], random=random.Random(f"{bench_seed()}/{side}/driver"))
        context = Context(self.env.device(side), mac=MACS[side], ip=IP[side], config=config)
        context.neighbours.add(IP[PEER[side]], MACS[PEER[side]])
        return context

    async def connect(self, length, pmtu, window=WINDOW, qps=1, **options):
        """An endpoint on each side, connected with each other, a receive posted on each QP."""
        ends = {side: await bridge(Endpoint)(self.contexts[side], length, window=window, qps=qps, **options)
                for side in SIDES}
        for side in SIDES:
            await bridge(ends[side].connect)(ends[PEER[side]].connections, path_mtu=MTU[f"MTU_{pmtu}"])
            await bridge(post_receives)(ends[side])
        return ends
