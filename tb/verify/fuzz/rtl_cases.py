"""Fuzzing of two RTL cards under their drivers: frames derived from genuine ones arrive at both MACs at line rate.

All rounds run in one simulation, so that the state after one round is the initial state of the next.
"""

import random

import cocotb
from cocotb.task import resume
from cocotb.triggers import Timer

from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract.params import preset
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.bench import given, leave
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_cards import SIDES, run_cards
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.host import HostConfig
from weft.tb.verify.fuzz.fuzzing import Fuzzing

ROUND, BURST, STEP_NS = 2_000, 40, 1_000
DELAY_NS, READ_LATENCY_NS = 300, 300


@resume
async def _step():
    await Timer(STEP_NS, "ns")


def _run(pair, settings):
    """Run all rounds; return the result of the bench."""
    def settle():
        while pair.env.frames_in_flight:
            fuzzing.step()

    fuzzing = Fuzzing(pair, random.Random(f"fuzz {bench_seed()}"), step=_step, settle=settle, burst=BURST,
                      victim_timeout=5, receive=lambda side, frame: pair.env.sides[side].mac_rx.receive(frame))
    for done in range(0, settings["frames"], ROUND):
        fuzzing.prepare()
        fuzzing.feed(min(ROUND, settings["frames"] - done))
        for side in SIDES:
            pair.guards[side].check()
        fuzzing.end()
        report_progress(settings["progress"], "fuzzing the RTL", done + ROUND, settings["frames"])
    drops = {side: {name.removeprefix("drop_"): count for name, count in context.statistics().items()
                    if name.startswith("drop_") and count} for side, context in pair.contexts.items()}
    for end in fuzzing.ends:
        end.close()
        blocks = end.context.knitting.check()
        assert blocks["free"] == sum(blocks.values()), blocks
    return {"frames": sum(fuzzing.kinds.values()), "kinds": fuzzing.kinds, "drops": drops}


@cocotb.test(timeout_time=2, timeout_unit="sec")
async def fuzz(dut):
    link = LinkConfig(delay_ns=DELAY_NS)
    config = EnvConfig(link, link, HostConfig(read_latency_ns=READ_LATENCY_NS))
    pair = RtlPair(dut, config, ContextConfig(), seed=bench_seed(), judged=False)
    await pair.start()
    found = await pair.call(_run, pair, given())
    pair.env.finish()
    leave(found)


def fuzz_rtl(frames, *, seed=None, timeout_s=3600, progress=None):
    """Feed frames to two RTL cards; return ``{"frames", "kinds", "drops"}``.

    If a check fails, the message of the AssertionError contains the command that repeats the run.
    """
    return run_cards(preset("test"), __file__, {"frames": frames, "progress": progress and str(progress)}, seed=seed,
                     timeout_s=timeout_s)
