"""``make programs``: third-party programs on the direct back end, and on functional cards with and without loss; each
operation on the other cards.

The other cards are the timed cards and the RTL, in simulated time.

``python -m weft.tb.verify.programs.run [--brief] [--only NAME] [--loss LOSS] [--backend NAME]``. The table is also
written to ``sim_build/reports/programs.json``: a list of ``{"program", "options", "backend", "loss", "status",
"figure", "unit", "seconds", "commands"}``, for rdma-core's tests instead of the last two ``"skipped"``: ``{test:
reason}``. The commands are those that a user types. A run replaces its rows and keeps the others. All programs are
started with ``LD_BIND_NOW=1``.
"""

import argparse
import fcntl
import itertools
import json
import signal
import sys
import time

from weft.tb.app.serve.environment import BUILD_ROOT
from weft.tb.sim.flow.failure import INTERRUPTED
from weft.tb.verify.programs import suite
from weft.tb.verify.programs.applications import APPLICATIONS
from weft.tb.verify.programs.programs import (
    FAILED,
    FORBIDDEN,
    MISSING,
    PASSED,
    SERVER_IP,
    TABLE,
    TOO_LONG,
    missing_packages,
    one,
    verdict,
)
from weft.tb.verify.programs.session import CannotServe, serving

LOSSES = ("0", "0.01")
BACKENDS, SIMULATED = ("direct", "functional", "model", "rtl"), ("--time", "sim", "--preset", "test")
FIRST_PORT, PORTS_OF_CARDS = 18600, 1000
REPORT = BUILD_ROOT / "reports/programs.json"
LOST = "not run: it waits for ever for a lost datagram"


def tests(session, loss):
    """Yield the rows of rdma-core's tests; the figure is the number of passed tests."""
    for name in suite.TESTS:
        ended = suite.run(session, name)
        ran, skipped = suite.counts(ended) or (0, 0)
        reasons = suite.skips(ended)
        status = verdict(ended) if ran and len(reasons) == skipped else FAILED
        print(f"{'rdma-core':18} {'test_' + name:24} loss {loss:5} {status:9} {ran - skipped} passed, "
              f"{skipped} skipped", flush=True)
        if status != PASSED:
            print(ended.output)
        yield {"program": "rdma-core", "options": f"test_{name}", "backend": "functional", "loss": float(loss),
               "status": status, "figure": ran - skipped, "unit": "tests", "skipped": reasons}


def keep(row):
    """Put a row into the report, where it replaces an older one; return the row."""
    def key(row):
        return row["program"], row["options"], row["backend"], row["loss"]

    REPORT.parent.mkdir(parents=True, exist_ok=True)
    with REPORT.open("a+") as report:
        fcntl.flock(report, fcntl.LOCK_EX)
        report.seek(0)
        rows = json.loads(report.read() or "[]")
        report.truncate(0)
        report.write(json.dumps([*(old for old in rows if key(old) != key(row)), row], indent=1) + "\n")
    return row


def operations(programs):
    """Return one shortened program for each operation."""
    return [program.briefly() for program in programs if program.package == "perftest"
            and (len(program.options) == 1 or not program.reliable and not program.on_card)]


def table(session, programs, backend, loss, ports):
    """Run programs and yield their rows."""
    for program in programs:
        unreliable, began, port = float(loss) and not program.reliable, time.monotonic(), next(ports)
        status, figure, output = (LOST, None, "") if unreliable else one(session, program, port)
        seconds, message = time.monotonic() - began, f"{figure:g} {program.unit}" if figure is not None else ""
        print(f"{program.name:18} {program.label:24} {backend:10} loss {loss:5} {seconds:5.1f} s {status:9} {message}",
              flush=True)
        if status == MISSING:
            print(f"not installed: apt-get install {program.package}")
        if status in (FAILED, TOO_LONG):
            print(*program.lines(port, SERVER_IP), output, sep="\n")
        yield {"program": program.name, "options": program.label, "backend": backend, "loss": float(loss),
               "status": status, "figure": figure, "unit": program.unit, "seconds": round(seconds, 1),
               "commands": program.lines(port, SERVER_IP)}


def good(row):
    """Return whether a row is no failure."""
    return row["status"] in (PASSED, MISSING, LOST) or row["status"].startswith(FORBIDDEN)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brief", action="store_true", help="little to do for each")
    parser.add_argument("--only", metavar="NAME", help="programs whose name has this in it")
    parser.add_argument("--backend", choices=BACKENDS, help="these cards alone")
    parser.add_argument("--loss", help="only at this share of lost frames, not at " + " and ".join(LOSSES))
    asked = parser.parse_args()
    programs = [program.briefly() if asked.brief else program for program in (*TABLE, *APPLICATIONS)
                if not asked.only or asked.only in program.name]
    if not programs:
        parser.error(f"no program has {asked.only!r} in its name")
    if absent := missing_packages(programs):
        print(f"some programs are missing; on Debian: apt-get install {' '.join(absent)}")
    if not asked.only and not suite.there():
        print(f"rdma-core's tests are missing; on Debian: apt-get install {' '.join(suite.PACKAGES)}")
    rows, losses = [], [asked.loss] if asked.loss else LOSSES
    first = FIRST_PORT + LOSSES.index(asked.loss) * len(programs) if asked.loss in LOSSES else FIRST_PORT
    ports = itertools.count(first + 1)
    if asked.backend == "direct" or not (asked.backend or asked.loss):
        with serving("--backend", "direct") as session:
            rows += map(keep, table(session, programs, "direct", "0", itertools.count(FIRST_PORT + PORTS_OF_CARDS)))
    for loss in losses if asked.backend in (None, "functional") else ():
        with serving("--backend", "functional", "--loss", loss) as session:
            rows += map(keep, table(session, programs, "functional", loss, ports))
            if not asked.only and suite.there():
                rows += map(keep, tests(session, loss))
    for backend in BACKENDS[2:]:
        chosen = operations(programs)
        if chosen and (asked.backend == backend or not (asked.backend or asked.loss)):
            with serving("--backend", backend, *SIMULATED) as session:
                rows += map(keep, table(session, chosen, backend, "0", ports))
    return 0 if all(map(good, rows)) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)      # each program is in a separate group
    try:
        sys.exit(main())
    except CannotServe as problem:
        sys.exit(f"make programs: {problem}")
    except KeyboardInterrupt:
        print("make programs: stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)
