"""Run of a test on a back end, with its table on the terminal and its JSON file."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from weft.tb.app.perf import bandwidth, latency, table
from weft.tb.app.perf.endpoint import TestFailed
from weft.tb.app.perf.plan import Plan
from weft.tb.app.perf.table import Row
from weft.tb.app.stage.host import PeerFailed, Program, ProgramFailed
from weft.tb.app.stage.stage import BACKENDS, Stage, play
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.flow.progress import beside_bar


def measure(plan: Plan, backend: str, stage: Stage, progress: Path | None = None) -> list[Row]:
    """Return the rows of figures of a plan."""
    program: Program = bandwidth.program if plan.is_bandwidth else latency.program
    ours, theirs = play((program, program), backend=backend, stage=stage, progress=progress, **asdict(plan))
    if not plan.is_bandwidth:
        return ours
    return [table.both_ways(*rows) for rows in zip(ours, theirs, strict=True)]


def about(backend: str, stage: Stage) -> list[tuple[str, str]]:
    """Return (name, value) pairs about back end, link and cards."""
    return [("Backend", backend), ("Clock", BACKENDS[backend].clock),
            ("Link", f"{stage.rtt_us:g} usec round trip, loss {stage.loss:g}, seed {stage.seed}"),
            ("Cards", f"preset {stage.preset}")]


def run(plan: Plan, backend: str, stage: Stage, *, gbits: bool = False, out_json: Path | None = None,
        command: str = "") -> int:
    """Run the test and print its results; return the exit status 0.

    Parameters
    ----------
    gbits
        Print rates in Gb/s instead of MiB/s.
    out_json
        File of ``{"test_info", "results"}``; ``results`` is a list if there are several sizes.
    command
        Command line, for the JSON.
    """
    more = about(backend, stage)
    print(table.banner(plan, more))
    print(table.head(plan, gbits), flush=True)
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        progress = Path(folder, "progress.jsonl")
        try:
            rows = beside_bar(Console(stderr=True), progress, lambda: measure(plan, backend, stage, progress),
                              {"phase": "starting; a simulator is built once, which takes minutes"}, transient=True)
        except (ProgramFailed, TestFailed, PeerFailed, AssertionError) as error:
            raise Failure(str(error)) from None
    rows = [table.in_units(row, gbits) for row in rows]
    for row in rows:
        print(table.line(row))
    print(table.RULE)
    if out_json:
        info = table.test_info(plan, more) | {"command": command, "BW_unit": "Gb/sec" if gbits else "MiB/sec"}
        Path(out_json).write_text(json.dumps({"test_info": info, "results": rows[0] if len(rows) == 1 else rows},
                                             indent=1) + "\n")
    return 0
