"""``weft formal``: prove the specifications, show a table, keep it in ``sim_build/reports/formal.json``.

Kinds of proof:

========== ============================================================================================
unbounded  an inductive invariant was found: holds in runs of any length
bounded    holds in all runs of up to ``bound`` cycles from reset, or from the state the name tells
cover      some run of up to ``bound`` cycles gets there: what is proven is not proven of nothing
mutant     a broken copy of the block must violate an assertion
========== ============================================================================================

What is proven of what (the bounds stand in the table that is shown):

===================== ====================== ===========================================================
specification         kinds                  of
===================== ====================== ===========================================================
ring_writer           unbounded; progress    ring pointers, phase, no entry overwritten or lost (the
                      bounded                return path's last stage)
ring_reader, _long    requests unbounded,    ring pointers, order, nothing fetched twice or lost, progress
                      the rest bounded
retire                unbounded; the block's conservation of blocks in the return path: one report for every
                      number bounded         node retired, with its block; none into a full queue
report_hold, reporter order unbounded;       the same, further on: no report lost, doubled, overtaken in its
                      the rest bounded       source, before its packet was placed, or kept
work_list,            unbounded              no list that is due is forgotten, none is offered twice
_few_places
head_cache            unbounded (2 entries), consecutive nodes, one head: no RSN in two entries
_4                    bounded (4 entries)
prefetch, _living,    bounded                never outside the extents, past the linked count, or for a dead
_small                                       generation; tags unique; nodes conserved; progress
window, _any_state    bounded                invariant 1: every PSN is received or a hole, exactly once
unmatched             bounded                no header left to the driver is forgotten by the order that
                                             retires what it passed over
===================== ====================== ===========================================================

The report is a list of ``{"name", "property", "kind", "bound", "seconds", "result", "at"}``.
"""

import importlib
import json
import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from weft.tb.flow.simulate import BUILD_ROOT
from weft.tb.proof.engine import ProofMissing, Result, caught, mutant, prove

REPORT = BUILD_ROOT / "reports/formal.json"
MODULES = ("spec_ring_reader", "spec_ring_writer", "spec_retire", "spec_return_path", "spec_work_list",
           "spec_head_cache", "spec_prefetch", "spec_window", "spec_unmatched")


def specifications():
    """Every specification by its name."""
    return {spec.name: spec for spec in _modules()}


def _modules():
    """The module of every specification."""
    modules = [importlib.import_module(f".{name}", __package__) for name in MODULES]
    return {spec: module for module in modules for spec in module.SPECS}


def broken(name):
    """For every broken copy of the block: a result of kind ``mutant``, ``caught`` if an assertion fails."""
    spec = specifications()[name]
    for number, (changes, *only) in enumerate(rest for s, *rest in _modules()[spec].MUTANTS if s is spec):
        found = caught(spec(mutant(spec.block, *changes)), only=only or None)
        yield Result(name, f"broken copy {number}: {found.property if found else 'nothing'} fails", "mutant", None,
                     found.seconds if found else 0, "caught" if found else "not caught", found and found.at)


def run(names=(), keep=True):
    """Prove the named specifications, or all; the exit status: 1 unless all is proven and reached."""
    console = Console()
    table = Table(box=None, pad_edge=False)
    for column, justify in (("block", "left"), ("property", "left"), ("kind", "left"), ("bound", "right"),
                            ("seconds", "right"), ("result", "left")):
        table.add_column(column, justify=justify)
    rows = []
    try:
        for name in names or specifications():
            console.print(f"proving {name}", style="dim")
            for result in [*prove(specifications()[name](), keep=keep), *broken(name)]:
                rows.append(result)
                told = result.result + (f" in cycle {result.at}" if result.at is not None else "")
                table.add_row(result.name, result.property, result.kind, str(result.bound or ""),
                              f"{result.seconds:.1f}", told if result.good else f"[red]{told}[/]")
    except ProofMissing as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1
    console.print(table)
    _merge(rows)
    console.print(f"report {REPORT}", style="dim", soft_wrap=True)
    bad = [row for row in rows if not row.good]
    for row in bad:
        print(f"weft: {row.name}: {row.property!r} is {row.result}", file=sys.stderr)
    return 1 if bad else 0


def _merge(rows):
    """Put the results into the report, in place of earlier ones of the same specifications."""
    try:
        old = json.loads(REPORT.read_text())
    except (OSError, json.JSONDecodeError):
        old = []
    names = {row.name for row in rows}
    merged = [row for row in old if row["name"] not in names] + [asdict(row) for row in rows]
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    part = REPORT.with_suffix(".part")
    part.write_text(json.dumps(merged, indent=1) + "\n")
    part.rename(REPORT)
