"""Cocotb test that runs a scenario on the gateware."""

import cocotb

from weft.tb.sim.flow.bench import given, leave
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.card_device import CardDevice
from weft.tb.sim.pcie.host_memory import HIGH
from weft.tb.sim.scenario.play import play
from weft.tb.sim.scenario.scenario import Scenario


class _FarDevice(CardDevice):
    """Device with all memory above 4 GiB, as in the timing model: TLP headers for it are one double word longer."""

    def __init__(self, host):
        super().__init__(host)
        host.memory.areas = (HIGH,)


@cocotb.test()
async def scenario(dut):
    chosen = Scenario(**given())
    a_to_b, b_to_a = chosen.links()
    config = EnvConfig(a_to_b=a_to_b, b_to_a=b_to_a, host=chosen.host())
    pair = RtlPair(dut, config, chosen.context_config(), seed=chosen.seed)
    pair.env.device_type = _FarDevice
    found = await play(pair, chosen)
    leave(found)
    assert not found["problems"], found["problems"]
