"""``weft report``: wide-area experiments on a page."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.tb.cli.failures import needs
from weft.tb.cli.parameters import number, option, refuse


def report(
    settings: Annotated[list[str] | None, typer.Argument(
        help="NAME=VALUE of every sweep, as of weft sweep.", metavar="[SETTING]...")] = None,
    output: Annotated[Path, option("The page.", "PATH")] = Path("sim_build/reports/report.html"),
    tables: Annotated[Path, option("Folder of the sweeps' tables; finished points in them are not run again.",
                                   "PATH")] = Path("sim_build/reports/sweeps"),
    scheduler: Annotated[str | None, option("A Dask cluster, tcp://HOST:PORT; threads of this process by itself.",
                                            "ADDRESS")] = None,
    jobs: Annotated[str, option("Points at once, without a cluster; 0: one for each processor.")] = "0",
):
    """What wide-area experiments say of Adamap and its rivals: one HTML page with pictures. Minutes the first time."""
    jobs = number("--jobs", jobs, int, 0, 1024) or len(os.sched_getaffinity(0))
    with needs("model"):
        from weft.tb.app.report import run
        from weft.tb.app.sweep.plan import BadPlan
        from weft.tb.app.sweep.table import BadTable
        from weft.tb.app.sweep.workers import Unreachable
        try:
            raise typer.Exit(run.report(output, tables, settings or [], scheduler=scheduler, jobs=jobs,
                                        command=shlex.join(["weft", *sys.argv[1:]])))
        except (BadPlan, BadTable, Unreachable) as error:
            refuse(str(error))
