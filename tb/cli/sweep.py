"""``weft sweep``: wide-area experiments, or runs of two cards."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.tb.cli.failures import needs
from weft.tb.cli.parameters import number, option, readable_file, refuse


def sweep(
    settings: Annotated[list[str] | None, typer.Argument(
        help="NAME=VALUE, or NAME=VALUE,VALUE to vary it; they come after those of the plan.",
        metavar="[SETTING]...")] = None,
    plan: Annotated[Path | None, option("TOML file with the tables fixed, vary and picture.", "PATH")] = None,
    of: Annotated[str | None, option("What the points are: wan, wide-area experiments, or cards, two cards on the RTL "
                                     "or in the model. [default: wan, or what the plan says]", "NAME")] = None,
    output: Annotated[Path, option("Parquet file; finished points in it are not run again.", "PATH")] = Path(
        "sim_build/reports/sweep.parquet"),
    scheduler: Annotated[str | None, option("A Dask cluster, tcp://HOST:PORT; threads of this process by itself.",
                                            "ADDRESS")] = None,
    jobs: Annotated[str, option("Points at once, without a cluster; 0: one for each processor.")] = "0",
):
    """Wide-area experiments of Adamap and its rivals, or runs of two cards: a table in Parquet, and a picture if the
    plan has one."""
    jobs = number("--jobs", jobs, int, 0, 1024) or len(os.sched_getaffinity(0))
    with needs("model"):
        from weft.tb.app.sweep.plan import BadPlan, read
        from weft.tb.app.sweep.run import run
        from weft.tb.app.sweep.table import BadTable
        from weft.tb.app.sweep.workers import Unreachable
        try:
            wanted = read(plan and readable_file(plan), settings or [], of)
            raise typer.Exit(run(wanted, output, command=shlex.join(["weft", *sys.argv[1:]]), scheduler=scheduler,
                                 jobs=jobs))
        except (BadPlan, BadTable, Unreachable) as error:
            refuse(str(error))
