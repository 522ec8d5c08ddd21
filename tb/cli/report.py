"""``weft report``: wide-area experiments on one page."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.model.settings import Setting
from weft.tb.cli.options import refuse
from weft.tb.cli.sweep import JOBS, SCHEDULER


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
    from weft.tb.app.report import run
    from weft.tb.app.sweep.plan import BadPlan
    from weft.tb.app.sweep.table import BadTable
    from weft.tb.app.sweep.workers import Unreachable
    try:
        raise typer.Exit(run.report(output, tables, settings or [], scheduler=scheduler,
                                    jobs=jobs or len(os.sched_getaffinity(0)),
                                    command=shlex.join(["weft", *sys.argv[1:]])))
    except (BadPlan, BadTable, Unreachable) as error:
        refuse(str(error))
