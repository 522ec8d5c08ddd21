"""``weft linux``: cases of two Linux guests with a card each, on functional and on timed cards; a line for each.

The table is written to ``sim_build/reports/linux.json`` as well: a list of ``{"case", "backend", "status", "seconds",
"figures": {name: [value, unit]}, "reason"}``; ``reason`` is that of a failure.
"""

import json
import tempfile
import time
from pathlib import Path

from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.tools import write_whole
from weft.tb.verify.linux.cases import CASES, SHORT, boot
from weft.tb.verify.linux.guest import GuestFailed
from weft.tb.verify.linux.lab import Lab

REPORT = BUILD_ROOT / "reports/linux.json"


def shown(figures):
    """Return figures as text."""
    return ", ".join(f"{name} {value:.4g}{' ' * bool(unit)}{unit}" for name, (value, unit) in figures.items())


def row_of(case, lab, backend):
    """Run a case, print its line, and return its row."""
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
    print(f"{backend:10} {case.name:24} {status}  {seconds:5.1f} s  {reason or shown(figures)}", flush=True)
    return {"case": case.name, "backend": backend, "status": status, "seconds": round(seconds, 1), "figures": figures,
            "reason": reason}


def rows(backend, cases, **options):
    """Yield the rows of a back end, up to a failed boot, or the end of a guest that a case does not expect."""
    with tempfile.TemporaryDirectory(prefix="weft-linux-") as folder, \
            Lab(Path(folder), backend=backend, **options) as lab:
        for case in cases:
            yield (row := row_of(case, lab, backend))
            if lab.ended or case.run is boot and row["status"] == "failed":
                return


def run(backends=("functional", "model"), cases=CASES):
    """Run all cases; return the exit status."""
    table = []
    for backend in backends:
        table += rows(backend, cases)
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        write_whole(REPORT, json.dumps(table, indent=1) + "\n")
    return 0 if len(table) == len(backends) * len(cases) and all(row["status"] == "passed" for row in table) else 1


def run_short():
    """Run the cases of a single machine; return the exit status."""
    table = list(rows("functional", SHORT, hosts="a"))
    return 0 if len(table) == len(SHORT) and all(row["status"] == "passed" for row in table) else 1


if __name__ == "__main__":
    raise SystemExit(run(("functional",)))
