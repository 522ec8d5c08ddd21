"""``weft linux``: cases of two Linux guests with functional, timed and RTL cards; a line for each.

The table is written to ``sim_build/reports/linux.json`` as well: a list of ``{"case", "backend", "status", "seconds",
"figures": {name: [value, unit]}, "reason"}``; ``reason`` is that of a failure.
"""

import json
import tempfile
import time
from pathlib import Path

from weft.tb.app.machine.settings import BACKENDS
from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.tools import write_whole
from weft.tb.verify.linux.cases import CASES, RTL, SHORT, boot
from weft.tb.verify.linux.guest import GuestFailed
from weft.tb.verify.linux.lab import Lab

CARDS = {"a": "ac", "b": "b"}       # of each guest; the RTL has two
REPORT = BUILD_ROOT / "reports/linux.json"


def shown(figures):
    """Return figures as text."""
    return ", ".join(f"{name} {value:.4g}{' ' * bool(unit)}{unit}" for name, (value, unit) in figures.items())


def shown_at_once(line):
    """Print a line at once."""
    print(line, flush=True)


def row_of(case, lab, backend, report=shown_at_once):
    """Run a case, report its line, and return its row."""
    start = time.monotonic()
    try:
        figures, reason = case.run(lab), ""
    except GuestFailed as error:
        figures, reason = {}, str(error)
        for guest in lab.guests.values():
            if not guest.ended:
                guest.kill_jobs()
    seconds = time.monotonic() - start
    status = "failed" if reason else "passed"
    report(f"{backend:10} {case.name:24} {status}  {seconds:5.1f} s  {reason or shown(figures)}")
    return {"case": case.name, "backend": backend, "status": status, "seconds": round(seconds, 1), "figures": figures,
            "reason": reason}


def rows_of(lab, backend, cases, report=shown_at_once):
    """Yield the rows of a lab, up to a failed boot, or the end of a guest that a case does not expect."""
    for case in cases:
        yield (row := row_of(case, lab, backend, report))
        if lab.ended or case.run is boot and row["status"] == "failed":
            return


def rows(backend, cases, **options):
    """Yield the rows of a back end in Python."""
    with tempfile.TemporaryDirectory(prefix="weft-linux-") as folder, \
            Lab(Path(folder), backend=backend, **options) as lab:
        yield from rows_of(lab, backend, cases)


def run(backends=BACKENDS):
    """Run all cases; return the exit status."""
    table, wanted = [], 0
    for backend in backends:
        start = time.monotonic()
        if backend == "rtl":
            from weft.tb.verify.linux.rtl_cases import rows_on_rtl
            table += rows_on_rtl(shown_at_once)
        else:
            table += rows(backend, CASES, cards=CARDS)
        wanted += len(RTL if backend == "rtl" else CASES)
        shown_at_once(f"{backend:10} {time.monotonic() - start:.0f} s")
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        write_whole(REPORT, json.dumps(table, indent=1) + "\n")
    return 0 if len(table) == wanted and all(row["status"] == "passed" for row in table) else 1


def run_short():
    """Run the cases of a single machine; return the exit status."""
    table = list(rows("functional", SHORT, cards={"a": CARDS["a"]}))
    return 0 if len(table) == len(SHORT) and all(row["status"] == "passed" for row in table) else 1


if __name__ == "__main__":
    raise SystemExit(run(("functional",)))
