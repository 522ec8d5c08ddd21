"""``weft formal``: prove the specifications, print the results, store them in ``sim_build/reports/formal.json``.

Kinds of proof:

========== ============================================================================================
unbounded  an inductive invariant was found: the property holds in runs of any length
together   the same, with one invariant of several checks, which strengthen each other
induction  the same: all checks of a specification hold at first, and a cycle after any state in which all hold
bounded    holds in all runs of up to ``bound`` cycles from reset, or from the state in the specification's name
cover      some run reaches the event, early enough before the bound, so that the proof is not vacuous
faulty     a faulty copy of the block must violate the named check
========== ============================================================================================

The printed table has the kinds and bounds of each specification; its class describes the subject.
"""

import _thread
import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed

from rich.console import Console

from weft.tb.sim.flow.figures import plain_table
from weft.tb.sim.synth import yosys
from weft.tb.verify.proof.engine import prove, refute
from weft.tb.verify.proof.ledger import REPORT, Ledger

MODULES = ("ring_reader", "ring_writer", "retire", "return_path", "work_list",
           "head_cache", "prefetch", "window", "software_matched", "wait_queue", "revocable_buffer", "splitter",
           "pacer")


@contextlib.contextmanager
def crew(count):
    """Yield a pool of ``count`` processes, which end at once on an exception in the block or when this process ends."""
    lifeline, held = os.pipe()
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("fork"), _watch, (lifeline, held))
    try:
        yield pool
    except BaseException:
        os.close(held)
        held = None
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        os.close(lifeline)
        if held is not None:
            os.close(held)


def _watch(lifeline, held):
    """End this worker when the other end of ``lifeline`` is closed; its commands then end, too, see ``guard.py``."""
    os.close(held)

    def wait():
        while os.read(lifeline, 1):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    _thread.start_new_thread(wait, ())


def specifications():
    """Return all specifications by name."""
    modules = [importlib.import_module(f".{name}", __package__) for name in MODULES]
    return {spec.name: spec for module in modules for spec in module.SPECS}


def faulty_copies(name):
    """Return the faulty copies of a specification."""
    spec = specifications()[name]
    return [faulty for faulty in sys.modules[spec.__module__].FAULTY if spec in faulty.specs]


def decide(name, number=None, keep=True):
    """Return the results of a specification, or the result of one of its faulty copies (of kind ``faulty``)."""
    spec = specifications()[name]
    if number is None:
        return list(prove(spec(), keep=keep))
    faulty = faulty_copies(name)[number]
    return [refute(faulty.spec(spec), faulty.check, keep=keep)]


def run(names=(), keep=True):
    """Prove the named specifications, or all; return the exit status: 1 unless all are proven, reached and caught."""
    console = Console()
    ledger = Ledger()
    names = list(names or specifications())
    yosys.version()     # raises an error before a worker process does
    with crew(os.cpu_count()) as pool:
        jobs = {pool.submit(decide, name, None, keep): (name, None) for name in names}
        jobs |= {pool.submit(decide, name, k, keep): (name, faulty.changes)
                 for name in names for k, faulty in enumerate(faulty_copies(name))}
        with console.status("proving") as status:
            for count, job in enumerate(as_completed(jobs), 1):
                name, changes = jobs[job]
                ledger.enter(job.result(), changes)
                status.update(f"proving: {count} of {len(jobs)} specifications and faulty copies done")
    if len(names) < len(specifications()):
        console.print(_details(ledger))
    console.print(_summary(ledger))
    ledger.save()
    console.print(f"report {REPORT}", style="dim", soft_wrap=True)
    faults = ledger.faults()
    for fault in faults:
        print(f"weft: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _details(ledger):
    """Return a table of every property and faulty copy."""
    table = plain_table("block", "property", "kind", "bound", "CPU s", "result", left=("block", "property", "result"))
    for row in ledger.results:
        text = row.result + (f" in cycle {row.at}" if row.at is not None else "")
        table.add_row(row.name, row.property, row.kind, str(row.bound or ""), f"{row.seconds:.1f}",
                      text if row.good else f"[red]{text}[/]")
    return table


def _summary(ledger):
    """Return a table with a row for every specification, and one for the totals."""
    table = plain_table("block", "proven", "checks", "bound", "last cover", "covers", "faulty copies", "CPU s",
                        left=("block", "proven"))
    report = ledger.report()
    for entry in report["specifications"]:
        last = max((c["cycle"] for c in entry["covers"] if c["cycle"] is not None), default="")
        table.add_row(entry["name"], entry["proven"], str(len(entry["checks"])), str(entry["bound"] or ""), str(last),
                      str(len(entry["covers"])), str(len(entry["faulty"])), f"{entry['seconds']:.0f}")
    total = report["totals"]
    table.add_row("all", "", str(total["checks"]), "", "", str(total["covers"]), str(total["faulty"]),
                  f"{total['seconds']:.0f}", style="bold")
    return table
