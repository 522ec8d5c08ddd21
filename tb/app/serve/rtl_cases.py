"""Served hosts on the RTL of two cards."""

from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.task import bridge

from weft.hdl.contract.params import preset
from weft.tb.app.serve.relay import Line, serve_by_simulator
from weft.tb.app.serve.rtl_backend import RtlBackend, ServedCards
from weft.tb.app.serve.served import serve
from weft.tb.app.serve.settings import Settings
from weft.tb.sim.flow.bench import given
from weft.tb.sim.pair.two_hosts import EnvConfig


def serve_rtl(settings: Settings, report: Callable[[str], None],
              on_end: Callable[[Callable[..., None]], object]) -> None:
    """Serve hosts, as :func:`~weft.tb.app.serve.relay.serve_by_simulator`."""
    serve_by_simulator(__file__, settings, report, on_end)


@cocotb.test()
async def served(dut: Any) -> None:
    asked = given()
    settings, line = Settings(**asked["settings"]), Line(asked["line"])
    link = settings.config()
    env = ServedCards(dut, EnvConfig(link, link, vectors=preset(settings.card).msix_vectors), settings.seed,
                      names=settings.hosts, captures=settings.capture)
    await env.start()

    def until_the_end() -> None:
        backend = RtlBackend(env, settings.hosts, delay_ns=settings.delay_ns, seed=settings.seed,
                             first=settings.first, congestion=settings.congestion)
        serve(backend, settings, line.report, line)

    await bridge(until_the_end)()
    env.finish()
