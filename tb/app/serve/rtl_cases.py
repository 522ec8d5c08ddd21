"""The bench of :mod:`weft.tb.app.serve.rtl`: brings two cards up, and serves them."""

import json
import os

import cocotb
from cocotb.task import bridge

from weft.hdl.contract.params import preset
from weft.model.impairments import LinkConfig
from weft.tb.app.serve.rtl import VARIABLE, Line
from weft.tb.app.serve.rtl_world import RtlWorld, ServedCards
from weft.tb.app.serve.served import serve
from weft.tb.app.serve.settings import Settings
from weft.tb.sim.pair.two_hosts import EnvConfig


@cocotb.test()
async def served(dut):
    asked = json.loads(os.environ[VARIABLE])
    settings, line = Settings(**asked["settings"]), Line(asked["line"])
    link = LinkConfig(delay_ns=settings.delay_ns, loss=settings.loss)
    env = ServedCards(dut, EnvConfig(link, link, vectors=preset(settings.card).msix_vectors), settings.seed,
                      names=settings.hosts, captures=settings.capture)
    await env.start()

    def until_the_end():
        world = RtlWorld(env, settings.hosts, delay_ns=settings.delay_ns, seed=settings.seed,
                         first=settings.first)
        serve(world, settings, line.say, line)

    await bridge(until_the_end)()
    env.finish()
