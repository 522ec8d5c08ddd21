"""RTL card at the guest's link: one of two simulated cards is connected to the guest instead of to the other card.

The two sides have different clocks. The guest follows real time; the simulation is some ten thousand times slower. No
frame is lost between them, because frames wait in unbounded queues. Only time-outs are affected. The simulated side
measures its time-outs with the simulation's clock, by which the guest answers within microseconds. Time-outs of the
guest's queue pairs are 2^21 * 4.096 µs = 8.6 s: the simulation needs less for a whole message.
"""

from functools import partial

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer

from weft.driver.terms.enums import MTU
from weft.hdl.contract.params import preset
from weft.tb.sim.flow.bench import given, leave
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pair.two_cards import run_cards
from weft.tb.sim.pair.two_hosts import EnvConfig, TwoCards
from weft.tb.sim.pcie.host import HostConfig
from weft.tb.verify.interop.environments import CardEnvironment
from weft.tb.verify.interop.exchange import card_writes, soft_exchange
from weft.tb.verify.interop.guest import Guest

GUEST_TIMEOUT = 21
LOOK_NS, STEP_NS = 2_000, 20_000
TIMEOUT, PROBE_NS = 10, 3_000_000       # 4.2 ms of simulated time


class CardAndGuest(TwoCards):
    """Two cards of which card A is connected to the guest; card B is not used."""

    guest = None

    def _deliver_to(self, name):
        return super()._deliver_to(name) if name == "a" else lambda frame: self.guest.port.send(frame)

    async def listen(self):
        """Pass the guest's frames to the card until the simulation ends."""
        mac = self.sides["a"].mac_rx
        while True:
            for frame in self.guest.port.receive():
                mac.receive(frame)
            await Timer(LOOK_NS, "ns")


# The endpoint at the Simple NIC, and WRITEs over the card's hardware path.
soft = partial(soft_exchange, length=9_000, sends=(0, 300), seed=1, mtu=MTU.MTU_4096, timeout=TIMEOUT,
               guest_timeout=GUEST_TIMEOUT)
hardware = partial(card_writes, messages=3, length=5_000, seed=2, timeout=TIMEOUT, guest_timeout=GUEST_TIMEOUT,
                   probe_timeout_ns=PROBE_NS)


def talk(env, device, case):
    """Run a case in the driver's thread; return its sentence, the drop counters that are not 0, and all counters."""
    environment = CardEnvironment(env.guest, device, step_ns=STEP_NS)
    output, counters = case(environment), environment.context.statistics()
    environment.close()
    return output, {name: count for name, count in counters.items() if name.startswith("drop_") and count}, counters


async def run(dut, case):
    """Start card and guest, run a case, and return the card's counters."""
    env = CardAndGuest(dut, EnvConfig(host=HostConfig(read_latency_ns=300)), seed=bench_seed())
    env.guest = Guest(given())
    await env.start()
    cocotb.start_soon(env.listen())
    output, dropped, counters = await bridge(talk)(env, env.device("a"), case)
    env.guest.release()
    env.finish()
    assert not dropped, dropped
    leave(f"{output}, {counters['rx_raw_frames']} frames to the host, {counters['tx_packets']} by hardware, none "
          "dropped")
    return counters


@cocotb.test(timeout_time=200, timeout_unit="ms")
async def endpoint(dut):
    counters = await run(dut, soft)
    assert counters["rx_raw_frames"] > 10 and not counters["tx_packets"]


@cocotb.test(timeout_time=200, timeout_unit="ms")
async def card(dut):
    counters = await run(dut, hardware)
    assert counters["tx_packets"] >= 15


def on_rtl(guest, case):
    """Run a case of this file on the RTL; return a sentence.

    ``endpoint`` is the software endpoint at the Simple NIC with packets of 4096 bytes; ``card`` writes over the card's
    hardware path.
    """
    guest.release()
    try:
        return run_cards(preset("test"), __file__, guest.numbers, tests=f"{case}$")
    finally:
        guest.take()
