"""``weft sim``: build two cards, run the main bench, show progress, print the report."""

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from weft.hdl.contract.params import preset as card_preset
from weft.tb.app.job.job import Job
from weft.tb.app.job.job_settings import JobSettings
from weft.tb.app.job.main_job import run_model
from weft.tb.app.job.report import line, print_report
from weft.tb.sim.flow import simulators
from weft.tb.sim.flow.build import BUILD_ROOT, build, locked
from weft.tb.sim.flow.progress import beside_bar
from weft.tb.sim.flow.run import Bench, run_folder, run_name, run_tests
from weft.tb.sim.pair.network import sides_of
from weft.tb.sim.pair.settings import SIDES
from weft.tb.sim.pair.two_cards import cards_name, top_of, two_cards_text
from weft.tb.sim.wave import view as wave

REPORT = BUILD_ROOT / "reports/sim.json"
CAPTURES = BUILD_ROOT / "captures"
TIMELINE = BUILD_ROOT / "reports/timeline.json"
CASES = Path(__file__).with_name("job_cases.py")
RUN_LIMIT_S = 24 * 3600


def publish(report: Path, captures: Path, timeline: Path) -> None:
    """Give the fixed names to a run's report, captures and timeline; remove older results without a successor.

    A run writes into a separate folder, where its results stay until another run uses it. At its end all of them get
    the fixed names together, so that concurrent runs do not mix their results. The names hold the results of the run
    that ends last.
    """
    with locked(BUILD_ROOT / ".locks/published"):
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        old = CAPTURES.with_name(f".{CAPTURES.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if CAPTURES.exists():
            CAPTURES.rename(old)
        if captures.exists():
            shutil.copytree(captures, CAPTURES, copy_function=_link)
        for left, name in ((report, REPORT), (timeline, TIMELINE)):
            name.unlink(missing_ok=True)
            if left.exists():
                _link(left, name)
        shutil.rmtree(old, ignore_errors=True)


def _link(source: str | Path, target: str | Path) -> None:
    """Give a file a second name; copy it where the file system cannot do that."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def withdraw() -> None:
    """Remove the published results, so that a failed run does not leave those of an older run."""
    with contextlib.suppress(OSError):
        REPORT.unlink(missing_ok=True)
        TIMELINE.unlink(missing_ok=True)
        shutil.rmtree(CAPTURES, ignore_errors=True)


def default_file() -> Path:
    """Return the default file of the job: cocotb's libgpi.so.

    Every installation that can simulate has it. It is a binary of just above 1 MiB without repeated blocks, so that a
    misplaced packet is detected.
    """
    import cocotb_tools.config as config

    return Path(config.libs_dir) / "libgpi.so"


def program() -> str:
    """Return the command that starts this command line in a shell from this folder."""
    script = Path(sys.executable).with_name("weft")
    if not script.exists():
        return shlex.join([sys.executable, "-m", "weft.tb.cli"])
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def run(settings: JobSettings, *, view: bool = False, verbose: bool = False) -> int:
    """Run the job; return the exit status: 0 passed, 1 failed. A run that ends with an exception leaves no results.

    Parameters
    ----------
    settings
        An empty ``file`` stands for :func:`default_file`.
    view
        Open the waves after the run.
    verbose
        Print all figures of the report.
    """
    try:
        return _run(Console(), replace(settings, file=settings.file or str(default_file())), view, not verbose)
    except BaseException:
        withdraw()
        raise


def _run(console: Console, settings: JobSettings, view: bool, brief: bool) -> int:
    model = settings.backend == "model"
    if not model:
        simulators.tool(settings.sim).check()
    way = f"the fabric {settings.fabric}" if settings.fabric else "a link"
    rates = "" if settings.fabric.endswith(".toml") else f" with loss {settings.loss:g}, RTT {settings.rtt_us:g} µs"
    line(console, f"{settings.file} ({Path(settings.file).stat().st_size:,} bytes) crosses {way}{rates}, seed "
         f"{settings.seed}")
    card = card_preset(settings.preset).with_(straddle=settings.straddle, mac_clock=settings.mac_clock)
    sides = sides_of(settings.network()) if settings.fabric else SIDES
    names = {"top": top_of(sides), "name": cards_name(card, sides), "sim": settings.sim, "waves": settings.waves}
    problem: AssertionError | None = None
    if model:
        where = BUILD_ROOT / "model-cards"
        where.mkdir(parents=True, exist_ok=True)
    else:
        text = _in_phase(console, "elaborating the card", lambda: two_cards_text(card, sides))
        try:
            where = _in_phase(console, f"building the simulator ({settings.sim}; minutes the first time, then kept)",
                              lambda: build(text, optimize="run", **names))
        except AssertionError as error:
            withdraw()
            print(f"weft: {error}", file=sys.stderr)
            return 1
    with run_folder(where, run_name(CASES)) as folder:
        job = Job(**asdict(settings), folder=str(folder), program=program())
        bench = Bench(cases=CASES, seed=job.seed, env=job.environment(), timeout_s=RUN_LIMIT_S, **names)
        first = {"phase": "starting", "total": max(Path(job.file).stat().st_size, 1)}
        try:
            beside_bar(console, job.progress, lambda: run_model(job) if model else run_tests(where, folder, bench),
                       first, notes=_notes)
        except AssertionError as error:
            problem = error
        passed = print_report(console, job.report, brief=brief) and problem is None
        written = wave.write(folder, job.captures) if settings.waves else None
        publish(job.report, job.captures, job.timeline_file)
    if problem:
        print(f"weft: {problem}", file=sys.stderr)
    if not model:
        line(console, f"log {folder / 'sim.log'}", "dim")
    line(console, f"captures {job.captures}\nreport {job.report}", "dim")
    if job.timeline:
        line(console, f"timeline {job.timeline_file}; open it in https://ui.perfetto.dev", "dim")
    if settings.waves:
        wave.print_summary(folder, written, view)
    return 0 if passed else 1


def _in_phase(console: Console, phase: str, work: Callable[[], Any]) -> Any:
    return beside_bar(console, None, work, {"phase": phase}, transient=True)


def _notes(progress: dict[str, Any]) -> str:
    """Return the text after phase and bytes of the progress line."""
    notes = "  ".join(f"{name} {value}" for name, value in progress.items()
                      if name not in ("phase", "done", "total", "time_ns"))
    return f"{progress['time_ns'] / 1000:,.0f} µs simulated  {notes}"
