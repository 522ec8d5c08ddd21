"""``weft sim``: build two cards, run the main bench, show progress, print the report."""

import json
import sys
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from weft.hdl.params import preset as card_preset
from weft.tb.flow import simulators
from weft.tb.flow.simulate import BUILD_ROOT, build, run_name, simulate
from weft.tb.job.job import Job
from weft.tb.world.two_cards import TOP, two_cards_text

CASES = Path(__file__).with_name("job_cases.py")
REPORT = BUILD_ROOT / "reports/sim.json"
CAPTURES = BUILD_ROOT / "captures"
RUN_LIMIT_S = 24 * 3600
POLL_S = 0.2
INTERRUPTED = 130


def default_file():
    """The file that travels when none is given: cocotb's libgpi.so.

    Every installation that can simulate has it, and it is a real binary of just above 1 MiB without repeated blocks,
    so that a misplaced packet shows.
    """
    import cocotb_tools.config as config

    return Path(config.libs_dir) / "libgpi.so"


def run(*, sim, preset, waves, view, **settings):
    """Run the job; the exit status: 0 passed, 1 failed.

    Parameters
    ----------
    sim, preset : str
    waves, view : bool
        Record waves, and open them afterwards.
    settings
        The other settings of :class:`~weft.tb.job.job.Job`; an empty ``file`` stands for :func:`default_file`.
    """
    console = Console()
    progress_file = BUILD_ROOT / "reports/sim.progress.jsonl"
    progress_file.parent.mkdir(parents=True, exist_ok=True)
    for old in (progress_file, REPORT):
        old.unlink(missing_ok=True)
    settings |= {"file": settings["file"] or str(default_file()), "sim": sim, "preset": preset}
    job = Job(**settings, progress=str(progress_file), report=str(REPORT), captures=str(CAPTURES))
    card = card_preset(preset)
    try:
        simulators.tool(sim).check()
    except simulators.MissingSimulator as missing:
        print(f"weft: {missing}", file=sys.stderr)
        return 1
    size = Path(job.file).stat().st_size
    console.print(f"{job.file} ({size:,} bytes) crosses a link with loss {job.loss:g}, RTT {job.rtt_us:g} µs, "
                  f"seed {job.seed}")
    options = {"top": TOP, "name": f"two-cards-{preset}", "sim": sim, "waves": waves, "optimize": "run"}
    where = None
    try:
        with console.status("Elaborating the card") as status:
            text = two_cards_text(card)
            status.update(f"Building the simulator ({sim}; minutes the first time, then kept)")
            where = build(text, **options)
        folder = _simulate(console, progress_file, size, lambda: simulate(
            verilog=text, cases=CASES, seed=job.seed, env=job.environment(), timeout_s=RUN_LIMIT_S, **options))
    except AssertionError as error:
        print_report(console, REPORT)
        print(f"weft: {error}", file=sys.stderr)
        if waves and where:
            _waves(where / run_name(CASES), view)
        return 1
    except KeyboardInterrupt:  # the simulator gets it too
        print("weft: stopped", file=sys.stderr)
        return INTERRUPTED
    passed = print_report(console, REPORT)
    console.print(f"log {folder / 'sim.log'}\ncaptures {CAPTURES}\nreport {REPORT}", style="dim", soft_wrap=True)
    if waves or view:
        _waves(folder, view)
    return 0 if passed else 1


def _waves(folder, view):
    """Write the save file of the run in ``folder`` and say how to open it, or open it."""
    from weft.tb.wave import view as wave

    if view:
        wave.show(folder, CAPTURES)
    elif written := wave.write(folder, CAPTURES):
        print(f"waves: {wave.command(*written)}")


def _simulate(console, progress_file, size, simulation):
    """Run ``simulation`` beside a progress bar; its result, or its exception."""
    outcome = {}

    def work():
        try:
            outcome["value"] = simulation()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(),
               TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.fields[notes]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=max(size, 1), notes="")
        thread.start()
        while thread.is_alive():
            news = _latest(progress_file)
            if news:
                notes = "  ".join(f"{name} {value}" for name, value in news.items()
                                  if name not in ("phase", "done", "total", "time_ns"))
                bar.update(task, description=news["phase"], completed=news["done"], total=max(news["total"], 1),
                           notes=f"{news['time_ns'] / 1000:,.0f} µs simulated  {notes}")
            time.sleep(POLL_S)
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _latest(progress_file):
    """The last whole line of the progress file, as a dict; None before the first."""
    if not progress_file.exists():
        return None
    lines = progress_file.read_text().rpartition("\n")[0].splitlines()
    return json.loads(lines[-1]) if lines else None


def print_report(console, path):
    """Print the report as tables; whether the run passed."""
    if not path.exists():
        console.print("The bench left no report.", style="red")
        return False
    report = json.loads(path.read_text())
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in report.items():
        if not isinstance(value, (dict, list)) and name != "ok":
            table.add_row(name.replace("_", " "), _shown(value))
    console.print(table)
    for direction, counters in report.get("link", {}).items():
        console.print(_link_table(direction, counters))
    for failure in report.get("failures", []):
        console.print(failure, style="red", markup=False)
    passed = bool(report["ok"])
    console.print("PASSED" if passed else "FAILED", style="bold green" if passed else "bold red")
    return passed


def _link_table(direction, counters):
    """What happened to the frames of one direction, by their kind."""
    table = Table(title=f"frames {direction.replace('_', ' ')}", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    kinds = list(counters["sent"])
    for kind in kinds:
        table.add_column(kind.replace("_", " "), justify="right")
    for fate, by_kind in counters.items():
        table.add_row(fate, *(f"{by_kind.get(kind, 0):,}" for kind in kinds))
    return table


def _shown(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return str(value)
