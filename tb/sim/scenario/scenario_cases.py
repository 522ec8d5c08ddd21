"""A scenario on the gateware; the settings come as JSON in ``WEFT_SCENARIO``, the result goes to ``WEFT_RESULT``."""

import json
import os
from functools import partial
from pathlib import Path

import cocotb
from cocotb.task import bridge
from cocotb.triggers import gather

from weft.hdl.contract.params import preset
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.sides import PEER, SIDES
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.card_device import CardDevice
from weft.tb.sim.pcie.host_memory import HIGH
from weft.tb.sim.scenario.recorder import Recorder
from weft.tb.sim.scenario.result import result
from weft.tb.sim.scenario.scenario import Losses, Scenario
from weft.tb.sim.scenario.traffic import Traffic


class _FarDevice(CardDevice):
    """All memory lies above 4 GiB, as the model has it: headers of what goes there are a double word longer."""

    def __init__(self, host):
        super().__init__(host)
        host.memory.allocate = partial(host.memory.allocate, areas=(HIGH,))


@cocotb.test()
async def scenario(dut):
    chosen = Scenario(**json.loads(os.environ["WEFT_SCENARIO"]))
    a_to_b, b_to_a = chosen.links()
    config = EnvConfig(a_to_b=a_to_b, b_to_a=b_to_a, host=chosen.host(), vectors=preset("test").msix_vectors)
    pair = RtlPair(dut, config, chosen.context_config(), seed=chosen.seed)
    pair.env.device_type = _FarDevice
    await pair.start()
    for side, peer in PEER.items():
        pair.env.link(f"{side}_to_{peer}").impairments.drop_when(Losses(chosen, side))
    recorders = {side: Recorder(pair.env.host(side).memory, pair.contexts[side]) for side in SIDES}
    traffic = Traffic(chosen, pair.contexts)
    for side in SIDES:
        await bridge(traffic.open)(side)
    await pair.connect(traffic.endpoints, **traffic.attributes)
    for side in SIDES:
        await bridge(traffic.post_receives)(side)
    await gather(*(bridge(traffic.run)(side) for side in SIDES))
    problems = traffic.problems()
    counters, _, complaints = await pair.close()
    found = result(traffic, counters, recorders, problems + complaints)
    Path(os.environ["WEFT_RESULT"]).write_text(json.dumps(found))
    assert not found["problems"], found["problems"]
