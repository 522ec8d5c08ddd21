"""``weft sweep``: runs the points that are not finished, saves each, and draws the picture of the plan.

The workers are Dask threads in this process, or a cluster by its address.
"""

import contextlib
import dataclasses
import logging
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster, as_completed
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from weft.tb.app.sweep import table
from weft.tb.app.sweep.plan import Plan
from weft.tb.app.sweep.subject import SUBJECTS, Row, Subject
from weft.tb.sim.flow.failure import Failure, stop
from weft.tb.sim.flow.figures import plain_table
from weft.tb.sim.flow.progress import Lines

CONNECT_S = 10
SAVE_EVERY_S = 5
SHOWN_MAX = 60


class SchedulerUnreachable(Exception):
    """No response at the scheduler's address."""


def point(name: str, settings: dict[str, Any]) -> dict[str, Any] | str:
    """Return the results of a point of the subject with this name, or a sentence about the reason for their absence."""
    subject = SUBJECTS[name]
    try:
        return dataclasses.asdict(subject.measure(subject.settings(**settings)))
    except subject.fails as error:
        return str(error) or "there is not enough memory for it"


@contextlib.contextmanager
def client(scheduler: str | None, jobs: int) -> Iterator[Client]:
    """Return a context with a Dask client. Raises Unreachable."""
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            logging.getLogger("distributed").setLevel(logging.ERROR)
            scheduler = stack.enter_context(LocalCluster(
                n_workers=1, threads_per_worker=jobs, processes=False, dashboard_address=":0", memory_limit=0))
        try:
            dask = stack.enter_context(Client(scheduler, timeout=CONNECT_S))
        except (OSError, ValueError) as error:
            raise SchedulerUnreachable(
                f"no Dask scheduler answers at {scheduler!r}: {error or 'it takes too long'}") from None
        yield dask


def results(dask: Client, subject: Subject, points: list[Any]) -> Iterator[tuple[Any, dict[str, Any] | str]]:
    """Yield ``(point, results or sentence)`` in the order of completion. Raises Failure if a worker fails."""
    futures = {dask.submit(point, subject.name, dataclasses.asdict(x), pure=False): x for x in points}
    for future in as_completed(futures):
        if future.status != "finished":
            raise Failure(f"a worker failed: {future.exception()!r}")
        yield futures[future], future.result()


def run(plan: Plan, output: Path, *, command: str, scheduler: str | None, jobs: int) -> int:
    """Run a plan into ``output``, and draw its picture; return the exit status. Raises BadTable or Unreachable."""
    shown, problems = complete(plan, output, command=command, scheduler=scheduler, jobs=jobs)
    console = Console(soft_wrap=True)
    _show(console, plan, shown)
    console.print(f"table {output}", style="dim")
    if plan.picture and shown:
        from weft.tb.app.sweep.picture import draw
        image = output.with_suffix(".png")
        draw(shown, plan.subject.picture | plan.picture, image, command)
        console.print(f"picture {image}", style="dim")
    for problem in problems:
        print(f"weft: {problem}", file=sys.stderr)
    return 1 if problems else 0


def complete(plan: Plan, output: Path, *, command: str, scheduler: str | None,
             jobs: int) -> tuple[list[Row], list[str]]:
    """Run the points that ``output`` lacks; return all rows, and sentences about problems.

    Raises BadTable or Unreachable.
    """
    made_by, subject = version("weft-rnic"), plan.subject
    rows = table.load(output, made_by, subject)
    finished = {table.key(row, subject) for row in rows}
    wanted = {x: table.key(dataclasses.asdict(x), subject) for x in plan.points}
    missing = [x for x in plan.points if wanted[x] not in finished]
    problems: list[str] = []
    if missing:
        with client(scheduler, jobs) as dask:
            problems = _run_points(dask, subject, missing, rows, lambda: table.save(
                output, rows, subject, command=command, version=made_by), len(plan.points))
    found = {table.key(row, subject): row for row in rows}
    return [found[key] for key in wanted.values() if key in found], problems


def _run_points(dask: Client, subject: Subject, missing: list[Any], rows: list[Row], save: Callable[[], None],
                total: int) -> list[str]:
    """Append a row for each point; return sentences about problems. Finished rows are saved even after an error."""
    console, problems, saved = Console(stderr=True), [], time.monotonic()
    lines = Lines(console)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("compiling, then points", total=total, completed=total - len(missing))
        try:
            for done, (x, found) in enumerate(results(dask, subject, missing), 1):
                if isinstance(found, str):
                    problems.append(f"{getattr(x, subject.picture['line'])} at loss {x.loss:g}: {found}")
                else:
                    rows.append(dataclasses.asdict(x) | found)
                bar.update(task, advance=1, description="points")
                if not console.is_terminal:
                    lines.show(f"running {len(missing)} of {total} points", done / len(missing))
                if time.monotonic() - saved > SAVE_EVERY_S:
                    save()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            save()
            stop("; the table has what was finished")      # Dask would wait for its threads: half a minute or more
        finally:
            save()
    return problems


def _conditions(plan: Plan) -> Iterator[str]:
    """Yield the settings that all points share, with their units, without those that are off."""
    for name, field in plan.subject.fields.items():
        if name not in plan.varied and (value := getattr(plan.points[0], name)) not in (0, "", None):
            yield f"{name} {value:g}" if field.kind is float else f"{name} {value}"


def _show(console: Console, plan: Plan, rows: list[Row]) -> None:
    names = (*plan.varied, *plan.subject.shown)
    shown = plain_table(*names, left=[name for name, field in plan.subject.fields.items() if field.kind is str])
    for row in rows[:SHOWN_MAX]:
        shown.add_row(*(str(row[name]) if name in plan.varied else f"{row[name]:,.4g}" if row[name] < 1e4
                        else f"{row[name]:,.0f}" for name in names))
    console.print(shown)
    console.print("of all: " + ", ".join(_conditions(plan)), style="dim")
    if len(rows) > SHOWN_MAX:
        console.print(f"and {len(rows) - SHOWN_MAX} more", style="dim")
