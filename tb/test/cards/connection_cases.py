"""The worked example of connection management with two RTL cards, with losses."""

import random
from dataclasses import replace

import cocotb
from cocotb.task import bridge

from weft.driver.connection.connection import ResponseTimeout
from weft.driver.engine import neighbours
from weft.driver.verbs.context import Context, ContextConfig
from weft.driver.verbs.device import add_device, remove_device
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.judge.dma_guard import DmaGuard
from weft.tb.sim.pair.settings import IP, MAC
from weft.tb.sim.pair.two_cards import SIDES
from weft.tb.sim.pair.two_hosts import EnvConfig, TwoCards
from weft.tb.test.examples import load

ROUGH = LinkConfig(delay_ns=1_000, loss=0.1, duplicate=0.1, reorder=0.1)
CONFIG = ContextConfig(probe_timeout_ns=25_000, reorder_distance=16, retransmit_slack=16,
                       cm_timeout=ResponseTimeout(response_timeout=4))     # 66 µs
ROUNDS, BYTES = 3, 500
ADDRESS = {"a": "10.0.0.1", "b": "10.0.0.2"}
neighbours.ASK_NS = 50_000      # a lost ARP request is repeated early, to keep the simulation short


@cocotb.test(timeout_time=50, timeout_unit="ms")
async def ping_pong(dut):
    """Two programs know only each other's address; ARP requests are sent and answered."""
    env = TwoCards(dut, EnvConfig(ROUGH, ROUGH), seed=bench_seed())
    await env.start()
    names, contexts, guards = {}, {}, []

    def open_card(side):
        config = replace(CONFIG, random=random.Random(f"{bench_seed()}/{side}"))
        names[side] = add_device(env.device(side), mac=MAC[side], ip=IP[side], config=config)
        contexts[side] = Context(name=names[side])
        guards.append(DmaGuard(env.host(side), contexts[side]))

    def close_card(side):
        services = contexts[side].engine.services
        agents = [service.agent for service in services]
        contexts[side].run_until(lambda: not any(agent.connections for agent in agents))
        contexts[side].close()
        remove_device(names[side])

    for side in SIDES:
        await bridge(open_card)(side)
    example = load("ping_pong")
    server = cocotb.start_soon(bridge(example.server)(ADDRESS["a"]))
    times = await bridge(example.client)(ADDRESS["b"], ADDRESS["a"], rounds=ROUNDS, size=BYTES)
    await server
    closing = [cocotb.start_soon(bridge(close_card)(side)) for side in SIDES]
    for each in closing:
        await each
    assert len(times) == ROUNDS
    for direction in ("a_to_b", "b_to_a"):
        cocotb.log.info("%s %s", direction, dict(env.link(direction).counters.destroyed))
    for guard in guards:
        guard.check()
    env.finish()
