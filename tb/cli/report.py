"""``weft report``: wide-area experiments on one page."""

import os
from pathlib import Path
from typing import Annotated

import typer

from weft.model.settings import Setting
from weft.tb.cli.options import typed_command
from weft.tb.cli.sweep import JOBS, SCHEDULER, sweeping


def report(
    settings: Annotated[list[str] | None, typer.Argument(
        help="NAME=VALUE of every sweep, as of weft sweep.", metavar="[SETTING]...")] = None,
    output: Annotated[Path, Setting("The page.", metavar="PATH")] = Path("sim_build/reports/report.html"),
    tables: Annotated[Path, Setting("Folder of the sweeps' tables; finished points in them are not run again.",
                                    metavar="PATH")] = Path("sim_build/reports/sweeps"),
    scheduler: Annotated[str | None, SCHEDULER] = None,
    jobs: Annotated[int, JOBS] = 0,
):
    """Write one HTML page with pictures of wide-area experiments with Adamap and other schemes.

    The first run takes minutes.
    """
    with sweeping():
        from weft.tb.app.report import run
        raise typer.Exit(run.report(output, tables, settings or [], scheduler=scheduler,
                                    jobs=jobs or len(os.sched_getaffinity(0)), command=typed_command()))
