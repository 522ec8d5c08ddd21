"""``weft mutants``: draw faults, run the tests against each, and list the survivors.

The report ``sim_build/reports/mutants.json`` has one entry per mutant. A run over all subsystems adds ``mutants``,
``mutants_killed`` and ``mutants_killed_fraction`` to the figures of ``bench.json``; mutants that are equivalent to the
sound design do not count.
"""

import json
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from weft.tb.sim.flow.aliases import with_former_fields
from weft.tb.sim.flow.figures import Row, merge_report, output, plain_table
from weft.tb.sim.flow.simulate import BUILD_ROOT
from weft.tb.sim.flow.tools import write_whole
from weft.tb.verify.mutate.campaign import BaselineFails, designs, for_all, judge, mutants, proof
from weft.tb.verify.mutate.netlist import YosysFailed
from weft.tb.verify.mutate.record import NotRecorded
from weft.tb.verify.mutate.subsystems import COUNT, SEED, SUBSYSTEMS, TARGETS

FILE = Path(__file__).with_name("survivors.toml")
KINDS = ("equivalent", "accepted")
REPORT = BUILD_ROOT / "reports/mutants.json"
BAR = 0.97


def explained(file=FILE):
    """Return ``{name: (kind, line)}`` of the survivors' file; raise ValueError with the reason if its format is wrong.

    The file has two tables of ``"name of the mutant" = "one line"``. Table ``[equivalent]`` lists faults that are not
    observable for a reason that the proof of :mod:`weft.tb.verify.mutate.equivalence` does not find; the fraction does
    not count them, nor those that the proof finds. Table ``[accepted]`` lists observable faults that may stay
    undetected.
    """
    tables = tomllib.loads(file.read_text()) if file.exists() else {}
    if extra := set(tables) - set(KINDS):
        raise ValueError(f"{file.name} has tables {', '.join(sorted(extra))}; they are {' and '.join(KINDS)}")
    found = {}
    for kind, lines in tables.items():
        for name, line in lines.items():
            if not isinstance(line, str) or not line.strip() or "\n" in line:
                raise ValueError(f"{file.name} explains {name!r} not in one line")
            if name in found:
                raise ValueError(f"{file.name} explains {name!r} twice")
            found[name] = kind, line
    return found


@dataclass(frozen=True)
class Entry:
    """Entry of the report."""

    name: str
    subsystem: str
    place: str
    result: str     # "killed", "equivalent", "accepted" or "survived"
    why: str        # the test that detected the mutant, the proof, or the line of the file of survivors
    seconds: float


def run(subsystems=(), count=COUNT, seed=SEED, jobs=2):
    """Run the tests against the mutants of the named subsystems, or of all; return the exit status."""
    console = output(160)
    try:
        entries, stale = campaign(console, subsystems, count, seed, jobs)
    except (BaselineFails, NotRecorded, YosysFailed, ValueError) as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1
    show(console, entries)
    write_whole(REPORT, json.dumps(with_former_fields("mutants", [vars(entry) for entry in entries]), indent=1) + "\n")
    if not subsystems:
        merge_report(rows(entries, count, seed), "weft mutants", whole=True)
    console.print(f"report {REPORT}", style="dim", soft_wrap=True)
    problems = [f"survived: {e.name}, {e.place}" for e in entries if e.result == "survived"]
    problems += [f"{FILE.name} has an entry for {name}, which is not a survivor"
                 for name in ([] if subsystems else stale)]
    problems += [f"{row.name} is {row.value:.3f}; the bar is {row.bar}" for row in rows(entries, count, seed)
                 if row.missed]
    for problem in problems:
        print(f"weft: {problem}", file=sys.stderr)
    return 1 if problems else 0


def campaign(console, subsystems, count, seed, jobs):
    """Return the entries, and the names in the file of survivors that match no survivor."""
    known = explained()
    chosen = list(mutants(designs(TARGETS), count, seed))
    chosen = [mutant for mutant in chosen if not subsystems or mutant.design.target.subsystem in subsystems]
    outcomes = _shown(console, "tests", judge, chosen, jobs, lambda outcome: outcome.detected_by or "survived")
    left = [m for m, outcome in zip(chosen, outcomes, strict=True) if not outcome.detected_by and m.name not in known]
    proofs = dict(zip([m.name for m in left], _shown(console, "proofs of equivalence", proof, left, jobs,
                                                     lambda how: how or "none"), strict=True))
    entries = []
    for mutant, outcome in zip(chosen, outcomes, strict=True):
        result, why = "survived", ""
        if outcome.detected_by:
            result, why = "killed", outcome.detected_by
        elif mutant.name in known:
            result, why = known[mutant.name]
        elif proofs[mutant.name]:
            result, why = "equivalent", proofs[mutant.name]
        entries.append(Entry(mutant.name, mutant.design.target.subsystem, mutant.mutation.place, result, why,
                             outcome.seconds))
    explained_here = {entry.name for entry in entries if entry.result != "killed"}
    return entries, sorted(set(known) - explained_here)


def rows(entries, count, seed):
    """Return the figures of a whole run."""
    results = Counter(entry.result for entry in entries)
    counted = len(entries) - results["equivalent"]
    conditions = f"drawn over all subsystems by seed {seed}, {results['equivalent']} equivalent ones left out"
    return [Row("mutants", "faults", counted, conditions=conditions),
            Row("mutants_killed", "faults", results["killed"], conditions=conditions),
            Row("mutants_killed_fraction", "1", results["killed"] / max(1, counted), at_least=BAR,
                conditions=conditions)]


def show(console, entries):
    """Print a table by subsystem."""
    table = plain_table("subsystem", "mutants", "killed", "equivalent", "accepted", "survived", "processor time",
                        left=("subsystem",))
    for subsystem in (*SUBSYSTEMS, "all"):
        of = [entry for entry in entries if subsystem in ("all", entry.subsystem)]
        results = Counter(entry.result for entry in of)
        if of:
            table.add_row(subsystem, str(len(of)), *(str(results[name]) for name in
                                                     ("killed", "equivalent", "accepted", "survived")),
                          f"{sum(entry.seconds for entry in of):.0f} s")
    console.print(table)


def _shown(console, subject, decide, chosen, jobs, word):
    """Run :func:`for_all` with a progress bar, or with a line for each mutant if the output is not a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(subject, total=len(chosen))
        done = []

        def report(mutant, answer):
            done.append(mutant)
            bar.advance(task)
            if not console.is_terminal:
                print(f"{subject} {len(done)}/{len(chosen)} {mutant.name}: {word(answer)}", flush=True)
        return for_all(decide, chosen, jobs, report)
