"""Programs on the RTL of two cards, in a simulator of its own process."""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from weft.hdl.contract.params import preset
from weft.tb.app.stage.host import ProgramFailed
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text

VARIABLE = "WEFT_STAGE"
RUN_LIMIT_S = 24 * 3600


def play(stage, programs, arguments, progress):
    """See :func:`weft.tb.app.stage.stage.play`."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        results = Path(folder, "results.json")
        settings = {"stage": asdict(stage), "programs": [_found(program) for program in programs],
                    "arguments": arguments, "progress": str(progress or ""), "results": str(results)}
        try:
            simulate(verilog=two_cards_text(preset(stage.preset)), top=TOP, name=f"two-cards-{stage.preset}",
                     cases=Path(__file__).with_name("rtl_cases.py"), sim="verilator", optimize="run", seed=stage.seed,
                     env={VARIABLE: json.dumps(settings)}, timeout_s=RUN_LIMIT_S)
        except AssertionError:
            if results.exists() and (sentence := json.loads(results.read_text()).get("error")):
                raise ProgramFailed(sentence) from None
            raise
        return json.loads(results.read_text())["results"]


def _found(program):
    """Where another process finds a function: module of an installed package or file, and name."""
    module = program.__module__
    return [module if module.startswith("weft.") else str(Path(sys.modules[module].__file__).resolve()),
            program.__qualname__]
