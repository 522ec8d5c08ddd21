"""Results of the proofs by specification, and the requirements that are not met."""

import json

from weft.tb.sim.flow.aliases import current_fields, with_former_fields
from weft.tb.sim.flow.simulate import BUILD_ROOT
from weft.tb.sim.flow.tools import write_whole
from weft.tb.verify.proof.specification import MARGIN

REPORT = BUILD_ROOT / "reports/formal.json"


class Ledger:
    """Results of specifications and of their faulty copies.

    A specification passes if every check is proven, every cover is reached at least :data:`MARGIN` cycles before its
    bound, every faulty copy is caught, and every check catches at least one copy.
    """

    def __init__(self):
        self.results, self._changes = [], {}

    def enter(self, results, changes=None):
        """Add results of a specification, or of the faulty copy with these changes."""
        self.results += results
        if changes is not None:
            self._changes[id(results[0])] = changes

    def of(self, name, *kinds):
        """Return the results of a specification, of the given kinds."""
        return [r for r in self.results if r.name == name and r.kind in kinds]

    def checks(self, name):
        """Return the results of the checks of a specification."""
        return self.of(name, "unbounded", "together", "induction", "bounded")

    def bound(self, name):
        """Return the least bound of a specification; None if all checks are proven for runs of any length."""
        return min((r.bound for r in self.of(name, "bounded")), default=None)

    def faults(self):
        """Return a sentence for each requirement that is not met."""
        faults = []
        for name in dict.fromkeys(r.name for r in self.results):
            bound, checks, faulty = self.bound(name), self.checks(name), self.of(name, "faulty")
            for r in checks:
                if not r.good:
                    text = f"{r.result} in cycle {r.at}" if r.at is not None else r.result
                    faults.append(f"{name}: {r.property!r} is {text}")
            for r in self.of(name, "cover"):
                if not r.good:
                    faults.append(f"{name}: {r.property!r} is not reached in {r.bound} cycles")
                elif bound is not None and r.at + MARGIN > bound:
                    faults.append(f"{name}: {r.property!r} is reached in cycle {r.at}, but the proof ends at {bound}, "
                                  f"less than {MARGIN} cycles later")
            if not self.of(name, "cover"):
                faults.append(f"{name}: has no cover")
            faults += [f"{name}: the faulty copy for {r.property!r} is {r.result}: {self._changes.get(id(r))}"
                       for r in faulty if not r.good]
            having = {r.property for r in faulty if r.good}
            faults += [f"{name}: no faulty copy is caught by {r.property!r}"
                       for r in checks if r.property not in having]
        return faults

    def report(self):
        """Return all results as plain data: per specification its checks, covers and faulty copies; and the totals."""
        entries = []
        for name in dict.fromkeys(r.name for r in self.results):
            checks = self.checks(name)
            entries.append({
                "name": name, "proven": " and ".join(sorted({r.kind for r in checks}, reverse=True)),
                "bound": self.bound(name), "seconds": round(sum(r.seconds for r in self.results if r.name == name), 1),
                "checks": [{"check": r.property, "proven": r.kind, "bound": r.bound, "result": r.result,
                            "seconds": r.seconds} for r in checks],
                "covers": [{"cover": r.property, "cycle": r.at} for r in self.of(name, "cover")],
                "faulty": [{"changes": self._changes.get(id(r)), "check": r.property, "result": r.result,
                            "cycle": r.at} for r in self.of(name, "faulty")],
            })
        return _with_totals(entries)

    def save(self):
        """Write the results to the report, and replace older ones of the same specifications."""
        try:
            old = current_fields("formal", json.loads(REPORT.read_text()))["specifications"]
        except (OSError, json.JSONDecodeError, TypeError, KeyError):
            old = []
        new = self.report()["specifications"]
        names = {entry["name"] for entry in new}
        merged = _with_totals([entry for entry in old if entry["name"] not in names] + new)
        write_whole(REPORT, json.dumps(with_former_fields("formal", merged), indent=1) + "\n")


def _with_totals(entries):
    counted = {subject: sum(len(entry[subject]) for entry in entries) for subject in ("checks", "covers", "faulty")}
    return {"margin": MARGIN, "totals": {**counted, "seconds": round(sum(e["seconds"] for e in entries), 1)},
            "specifications": entries}
