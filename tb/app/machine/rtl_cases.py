"""Service of virtual machines by the RTL of two cards."""

from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.task import bridge

from weft.tb.app.machine.machine import serve_machine
from weft.tb.app.machine.rtl_machine import GuestCards, RtlMachine
from weft.tb.app.machine.settings import MachineSettings
from weft.tb.app.serve.relay import Line, serve_by_simulator
from weft.tb.sim.flow.bench import given


def serve_rtl(settings: MachineSettings, report: Callable[[str], object],
              on_end: Callable[[Callable[..., None]], object]) -> None:
    """Serve the cards, as :func:`~weft.tb.app.serve.relay.serve_by_simulator`."""
    serve_by_simulator(__file__, settings, report, on_end)


@cocotb.test()
async def served(dut: Any) -> None:
    asked = given()
    settings, line = MachineSettings(**asked["settings"]), Line(asked["line"])
    env = GuestCards.of(dut, settings)
    await env.start()

    def until_the_end() -> None:
        serve_machine(RtlMachine(settings, line.report, env), settings, line.report, line)

    await bridge(until_the_end)()
    env.finish()
