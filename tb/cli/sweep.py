"""``weft sweep``, ``report``: wide-area experiments, flows over a fabric, or two cards, as tables and on one page."""

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from weft.model.settings import Setting, readable_file
from weft.tb.app.sweep.plans import PLANS
from weft.tb.cli.options import refuse, typed_command

SCHEDULER = Setting("A Dask cluster, tcp://HOST:PORT; without one, threads of this process.", metavar="ADDRESS")
JOBS = Setting("Points at once, without a cluster; 0: one for each processor.", least=0, most=1024)


def plan_file(text):
    """Return the path of the plan that a user names: a file, or a plan of weft."""
    return PLANS[text] if text in PLANS and not Path(text).exists() else readable_file(text)


@contextlib.contextmanager
def sweeping():
    """Refuse what a sweep cannot use: its plan, its table or its scheduler."""
    from weft.tb.app.sweep.plan import BadPlan
    from weft.tb.app.sweep.run import SchedulerUnreachable
    from weft.tb.app.sweep.table import BadTable
    try:
        yield
    except (BadPlan, BadTable, SchedulerUnreachable) as error:
        refuse(str(error))


def sweep(
    settings: Annotated[list[str] | None, typer.Argument(
        help="NAME=VALUE, or NAME=VALUE,VALUE to vary it; they come after those of the plan.",
        metavar="[SETTING]...")] = None,
    plan: Annotated[Path | None, Setting("TOML file with the tables fixed, vary and picture, or a plan of weft: "
                                         f"{', '.join(PLANS)}.", read=plan_file, metavar="PATH")] = None,
    of: Annotated[str | None, Setting("Kind of the points: wan, wide-area experiments, fabric, flows over a network, "
                                      "or cards, two cards on the RTL or in the model.", metavar="NAME",
                                      default_text="wan, or the kind that the plan names")] = None,
    output: Annotated[Path, Setting("Parquet file; finished points in it are not run again. Its folder is made.",
                                    metavar="PATH")] = Path(
        "sim_build/reports/sweep.parquet"),
    scheduler: Annotated[str | None, SCHEDULER] = None,
    jobs: Annotated[int, JOBS] = 0,
):
    """Run wide-area experiments, flows over a fabric, or two cards, for all points of a plan.

    The results are a table in Parquet, and a picture if the plan has one.
    """
    with sweeping():
        from weft.tb.app.sweep.plan import read
        from weft.tb.app.sweep.run import run
        raise typer.Exit(run(read(plan, settings or [], of), output, command=typed_command(), scheduler=scheduler,
                             jobs=jobs or len(os.sched_getaffinity(0))))


def report(
    settings: Annotated[list[str] | None, typer.Argument(
        help="NAME=VALUE of every sweep, as of weft sweep.", metavar="[SETTING]...")] = None,
    output: Annotated[Path, Setting("The page. Its folder is made.", metavar="PATH")] = Path(
        "sim_build/reports/report.html"),
    tables: Annotated[Path, Setting("Folder of the sweeps' tables; finished points in them are not run again.",
                                    metavar="PATH")] = Path("sim_build/reports/sweeps"),
    scheduler: Annotated[str | None, SCHEDULER] = None,
    jobs: Annotated[int, JOBS] = 0,
):
    """Write one HTML page with pictures of wide-area experiments with Adamap and other schemes.

    The first run takes minutes.
    """
    with sweeping():
        from weft.tb.app.report.run import report as write
        raise typer.Exit(write(output, tables, settings or [], scheduler=scheduler,
                               jobs=jobs or len(os.sched_getaffinity(0)), command=typed_command()))
