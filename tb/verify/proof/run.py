"""``weft formal``: prove the specifications, show what came of it, keep it in ``sim_build/reports/formal.json``.

Kinds of proof:

========== ============================================================================================
unbounded  an inductive invariant was found: holds in runs of any length
together   the same, an invariant of several checks, which strengthen each other
induction  the same: all checks of a specification hold at first, and a cycle after any state in which all hold
bounded    holds in all runs of up to ``bound`` cycles from reset, or from the state the name tells
cover      some run gets there, early enough before the bound: what is proven is not proven of nothing
broken     a broken copy of the block must violate the check that is named
========== ============================================================================================

What is proven of what (the bounds stand in the table that is shown):

===================== ====================== ===========================================================
specification         kinds                  of
===================== ====================== ===========================================================
ring_writer           unbounded; progress    ring pointers, phase, no entry overwritten or lost (the
                      bounded                return path's last stage)
ring_reader           induction; progress    ring pointers, order, nothing fetched twice or lost, progress;
                      bounded                4 entries, from any lap
ring_reader_long      requests unbounded,    the same from reset, with 8 entries
                      the rest bounded
retire                unbounded; the block's conservation of blocks in the return path: one report for every
                      number bounded         node retired, with its block; none into a full queue
report_hold, reporter induction              the same, further on: no report lost, doubled, overtaken in its
                                             source, before its packet was placed, or kept
work_list             unbounded              no list that is due is forgotten, none is offered twice; when its
work_list_few_places  induction              queue overflows, the others are searched for
head_cache            induction              consecutive nodes, one head: no RSN in two entries
prefetch              bounded                never outside the extents, past the linked count, or for a dead
                                             generation; 4 entries, from reset
prefetch_rest         bounded                the same, no RSN in two entries, nodes conserved, progress, and
                                             every rest is such a one again; 2 entries, from any rest
window                induction              invariant 1: every PSN is received or a hole, exactly once
unmatched             induction              no header left to the driver is forgotten by the order that
                                             retires what it passed over
wait_queue            unbounded, together    headers that wait: none lost or doubled, the oldest is tried first
revocable_buffer      unbounded, together    a frame kept comes out once, in order; one taken back never does
splitter              induction              pieces of a DMA request: all of it, in order, none too large
===================== ====================== ===========================================================
"""

import importlib
import os
import sys
from concurrent.futures import as_completed

from rich.console import Console
from rich.table import Table

from weft.tb.verify.proof.checkers import ProofMissing, versions
from weft.tb.verify.proof.crew import crew
from weft.tb.verify.proof.engine import prove, refute
from weft.tb.verify.proof.ledger import REPORT, Ledger

MODULES = ("ring_reader", "ring_writer", "retire", "return_path", "work_list",
           "head_cache", "prefetch", "window", "unmatched", "wait_queue", "revocable_buffer", "splitter")


def specifications():
    """Every specification by its name."""
    return {spec.name: spec for module in _modules() for spec in module.SPECS}


def _modules():
    return [importlib.import_module(f".{name}", __package__) for name in MODULES]


def broken_copies(name):
    """The broken copies for a specification."""
    spec = specifications()[name]
    return [broken for broken in sys.modules[spec.__module__].BROKEN if spec in broken.specs]


def decide(name, number=None, keep=True):
    """Results of a specification, or that of one of its broken copies (of kind ``broken``)."""
    spec = specifications()[name]
    if number is None:
        return list(prove(spec(), keep=keep))
    broken = broken_copies(name)[number]
    return [refute(broken.spec(spec), broken.check, keep=keep)]


def run(names=(), keep=True):
    """Prove the named specifications, or all; the exit status: 1 unless all is proven, reached and caught."""
    console = Console()
    ledger = Ledger()
    names = list(names or specifications())
    try:
        versions()
    except ProofMissing as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1
    with crew(os.cpu_count()) as pool:
        jobs = {pool.submit(decide, name, None, keep): (name, None) for name in names}
        jobs |= {pool.submit(decide, name, k, keep): (name, broken.changes)
                 for name in names for k, broken in enumerate(broken_copies(name))}
        with console.status("proving") as status:
            for count, job in enumerate(as_completed(jobs), 1):
                name, changes = jobs[job]
                ledger.enter(job.result(), changes)
                status.update(f"proving: {count} of {len(jobs)} specifications and broken copies done")
    if len(names) < len(specifications()):
        console.print(_details(ledger))
    console.print(_summary(ledger))
    ledger.save()
    console.print(f"report {REPORT}", style="dim", soft_wrap=True)
    faults = ledger.faults()
    for fault in faults:
        print(f"weft: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _table(*columns):
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in ("block", "property", "result", "proven") else "right")
    return table


def _details(ledger):
    """Every property and broken copy."""
    table = _table("block", "property", "kind", "bound", "CPU s", "result")
    for row in ledger.results:
        told = row.result + (f" in cycle {row.at}" if row.at is not None else "")
        table.add_row(row.name, row.property, row.kind, str(row.bound or ""), f"{row.seconds:.1f}",
                      told if row.good else f"[red]{told}[/]")
    return table


def _summary(ledger):
    """A line for every specification, and one for all."""
    table = _table("block", "proven", "checks", "bound", "last cover", "covers", "broken copies", "CPU s")
    report = ledger.report()
    for entry in report["specifications"]:
        last = max((c["cycle"] for c in entry["covers"] if c["cycle"] is not None), default="")
        table.add_row(entry["name"], entry["proven"], str(len(entry["checks"])), str(entry["bound"] or ""), str(last),
                      str(len(entry["covers"])), str(len(entry["broken"])), f"{entry['seconds']:.0f}")
    total = report["totals"]
    table.add_row("all", "", str(total["checks"]), "", "", str(total["covers"]), str(total["broken"]),
                  f"{total['seconds']:.0f}", style="bold")
    return table
