"""Programs on the RTL of two cards, each in a thread of a simulator in a separate process."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cocotb

from weft.hdl.contract.params import preset
from weft.model.impairments import LinkConfig
from weft.tb.app.stage.host import Program, ProgramFailed, perform
from weft.tb.app.stage.stage import Stage
from weft.tb.sim.flow.bench import given, leave
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.settings import context_config
from weft.tb.sim.pair.two_cards import run_cards
from weft.tb.sim.pair.two_hosts import EnvConfig

RUN_LIMIT_S = 24 * 3600


def play_rtl(stage: Stage, programs: Sequence[Program], arguments: dict[str, Any], progress: Path | None) -> list[Any]:
    """Play programs as :func:`weft.tb.app.stage.stage.play` does."""
    settings = {"stage": asdict(stage), "programs": list(map(_place, programs)), "arguments": arguments,
                "progress": str(progress or "")}
    found = run_cards(preset(stage.preset), __file__, settings, seed=stage.seed, timeout_s=RUN_LIMIT_S)
    if found["error"]:
        raise ProgramFailed(found["error"])
    return found["results"]


def _place(program: Program) -> list[str]:
    """Return the location of a function for another process: module of an installed package or file, and name."""
    module = program.__module__
    return [module if module.startswith("weft.") else str(Path(inspect.getfile(sys.modules[module])).resolve()),
            program.__qualname__]


def _found(where: str, name: str) -> Program:
    """Return the function ``name`` of a module or of a file."""
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        assert spec and spec.loader, f"{where} has no loader"
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    return getattr(module, name)


@cocotb.test()
async def stage(dut: Any) -> None:
    settings = given()
    wanted = settings["stage"]

    def progress(*numbers: Any) -> None:
        report_progress(settings["progress"], *numbers)

    progress("bringing hosts and cards up")
    link = LinkConfig(delay_ns=wanted["rtt_us"] * 500, loss=wanted["loss"])
    config = EnvConfig(link, link, vectors=preset(wanted["preset"]).msix_vectors)
    pair = RtlPair(dut, config, context_config(wanted["rtt_us"]), seed=wanted["seed"], judged=False)
    await pair.start()
    programs = [_found(*program) for program in settings["programs"]]
    hosts, results = await perform(pair, programs, settings["arguments"], progress, wanted["rtt_us"])
    errors = [f"{type(host.error).__name__}: {host.error}" for host in hosts if host.error is not None]
    leave({"results": results, "error": "; ".join(errors)})
    if errors:
        return
    await pair.drain()
    for side, guard in pair.guards.items():
        await pair.call(pair.contexts[side].close)
        guard.check()
    pair.env.finish()
