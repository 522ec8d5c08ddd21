"""One of two simulated cards talks to the guest instead of to the other one."""

import os

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer

from weft.hdl.params import preset
from weft.tb.flow.simulate import bench_seed
from weft.tb.interop.exchange import card_writes, soft_exchange
from weft.tb.interop.guest import Guest
from weft.tb.interop.rtl import GUEST_TIMEOUT, NUMBERS
from weft.tb.interop.worlds import CardWorld
from weft.tb.world.host import HostConfig
from weft.tb.world.two_hosts import EnvConfig, TwoCards

LOOK_NS, STEP_NS = 2_000, 20_000
TIMEOUT, PROBE_NS = 10, 3_000_000       # 4.2 ms, by the simulation's clock


class CardAndGuest(TwoCards):
    """Card A is at the guest's wire; what it sends goes there, and card B is left alone."""

    guest = None

    def _deliver_to(self, name):
        return super()._deliver_to(name) if name == "a" else lambda frame: self.guest.port.send(frame)

    async def listen(self):
        """What the guest sends, for as long as the simulation lasts."""
        mac = self.sides["a"].mac_rx
        while True:
            for frame in self.guest.port.receive():
                mac.receive(frame)
            await Timer(LOOK_NS, "ns")


def talk(env, device):
    """Both cases; runs in a thread of its own, as the driver does."""
    world = CardWorld(env.guest, device, step_ns=STEP_NS)
    done = [soft_exchange(world, length=6_000, sends=(0, 300), seed=1, timeout=TIMEOUT, guest_timeout=GUEST_TIMEOUT),
            card_writes(world, messages=3, length=5_000, seed=2, timeout=TIMEOUT, guest_timeout=GUEST_TIMEOUT,
                        probe_ns=PROBE_NS)]
    counters = world.context.statistics()
    world.close()
    dropped = {name: count for name, count in counters.items() if name.startswith("drop_") and count}
    return done, dropped, counters


@cocotb.test(timeout_time=200, timeout_unit="ms")
async def guest_and_card(dut):
    env = CardAndGuest(dut, EnvConfig(host=HostConfig(read_latency_ns=300), vectors=preset("test").msix_vectors),
                       seed=bench_seed())
    env.guest = Guest(tuple(map(int, os.environ[NUMBERS].split())))
    await env.start()
    cocotb.start_soon(env.listen())
    done, dropped, counters = await bridge(talk)(env, env.device("a"))
    cocotb.log.info("%s; %s frames in, %s packets out by hardware", "; ".join(done), counters["rx_frames"],
                    counters["tx_packets"])
    assert not dropped and counters["tx_packets"] >= 15 and counters["rx_raw_frames"] > 20, dropped
    env.guest.release()
    env.finish()
