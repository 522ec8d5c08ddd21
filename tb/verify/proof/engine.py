"""Proofs: model checkers decide the properties of a :class:`Spec`, and the results are stored.

A specification becomes an and-inverter graph with one output per property. The model checker ABC decides each output.
``pdr`` searches an inductive invariant, so that its proofs hold for runs of any length. ``bmc3`` checks all runs up to
a bound, and the single step of an induction from any state, whose invariant is given by the specification. Results
are stored by content in ``sim_build/formal``: those of specifications, and those of graphs.
"""

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass, replace

from weft.tb.sim.flow.simulate import BUILD_ROOT, locked
from weft.tb.sim.synth import yosys
from weft.tb.verify.proof.checkers import abc, induct, seconds_spent, write_bits
from weft.tb.verify.proof.specification import FREE_COVERS

FLOW = 8    # must be raised when the processing of a specification changes


@dataclass
class Result:
    """Outcome of a property, or of a faulty copy."""

    name: str
    property: str
    kind: str
    bound: int | None
    seconds: float           # of CPU time
    result: str              # proven, reached, failed or unknown; of a faulty copy caught, not caught or unknown
    at: int | None = None    # cycle of the counterexample, or cycle in which the cover was reached

    @property
    def good(self):
        return self.result == {"cover": "reached", "faulty": "caught"}.get(self.kind, "proven")


def prove(spec, *, only=None, keep=True):
    """Decide the properties of a specification, or those with a name in ``only``; yield a :class:`Result` for each.

    Results are stored: a second run of an unchanged specification uses them. Unknown results are not stored.
    """
    start = seconds_spent()
    text, properties = spec.convert()
    name = spec.name or type(spec).__name__
    with _place(spec, name, text) as where:
        wanted = {k: p for k, p in enumerate(properties) if only is None or p.name in only}
        allies, inductive = ([k for k, p in enumerate(properties) if p.kind == kind]
                             for kind in ("together", "induction"))
        joint = joint_step = bits = None    # results of the joint proofs; folder of the bits
        for k, prop in wanted.items():
            if keep and (kept := _kept(where, k, prop)).exists():
                yield Result(**json.loads(kept.read_text()) | {"property": prop.name})     # it may have a new name
                continue
            bits = bits or _bits(where, spec, text, only and wanted, allies, inductive)
            if k in allies:
                joint = joint or abc(bits, allies, prop, keep=keep)
                verdict, at = _of_one(bits, k, prop, *joint)
            elif k in inductive:
                joint_step = joint_step or induct(bits, inductive, prop, keep)
                verdict, at = _of_one(bits, k, prop, *joint_step)
            else:
                verdict, at = _decide(bits, k, prop, keep)
            result = Result(name, prop.name, prop.kind, prop.bound, round(seconds_spent() - start, 1), verdict, at)
            if verdict != "unknown":
                _kept(where, k, prop).write_text(json.dumps(asdict(result)))
            yield result
            start = seconds_spent()


def _bits(where, spec, text, wanted, *together):
    """Return the folder with the bits of the specification: all, or the ``wanted`` ones with their joint proofs."""
    if (where / "ready").exists():
        return where
    if wanted is None:
        write_bits(where, spec, text)
        (where / "ready").touch()
        return where
    some = where.with_name(f"{where.name}-some")
    some.mkdir(exist_ok=True)
    with_it = [group if set(group) & set(wanted) else [] for group in together]
    write_bits(some, spec, text, sorted({*wanted, *sum(with_it, [])}), step=bool(with_it[-1]))
    return some


def refute(spec, check, *, keep=True):
    """Decide whether a faulty copy violates a check; return a :class:`Result` of kind ``faulty``.

    The result is ``caught``, ``not caught`` or ``unknown``. Runs are checked up to the bound of a bounded check, and
    up to :data:`FREE_COVERS` cycles for other checks.
    """
    start = seconds_spent()
    spec.alone = True
    text, properties = spec.convert()
    name = spec.name or type(spec).__name__
    number, prop = next((k, p) for k, p in enumerate(properties) if p.name == check and p.kind != "cover")
    bounded = replace(prop, kind="bounded", bound=prop.bound if prop.kind == "bounded" else FREE_COVERS)
    with _place(spec, name, text, f"-broken{number}") as where:
        kept = _kept(where, number, bounded)
        if keep and kept.exists():
            return Result(**json.loads(kept.read_text()))
        write_bits(where, spec, text, outputs=[number])
        verdict, cycle = abc(where, [number], bounded, keep=keep)
        outcome = {"violated": "caught", "holds": "not caught"}.get(verdict, "unknown")
        result = Result(name, check, "faulty", prop.bound, round(seconds_spent() - start, 1), outcome, cycle)
        for file in where.iterdir():    # a specification has many faulty copies
            if file.suffix not in (".json", ".lock") and file.name != "lock":
                file.unlink()
        if verdict != "unknown":
            kept.write_text(json.dumps(asdict(result)))
        return result


@contextlib.contextmanager
def _place(spec, name, text, suffix=""):
    """Yield the folder of a specification, named by content, locked for this process."""
    content = "\0".join([text, *spec.probes, *spec.anywhere, str(FLOW), yosys.version()])
    where = BUILD_ROOT / "formal" / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}{suffix}"
    where.mkdir(parents=True, exist_ok=True)
    with locked(where / "lock"):
        yield where


def _kept(where, number, prop):
    """Return the file of the result of a property."""
    return where / f"{number}-{prop.kind}-{prop.bound}.json"


def _of_one(where, number, prop, verdict, cycle):
    """Return verdict and cycle of a property, given those of the joint proof."""
    if verdict == "violated":
        verdict, at = abc(where, [number], replace(prop, kind="bounded", bound=cycle))
        return ("failed", at) if verdict == "violated" else ("unknown", cycle)
    return ("proven", None) if verdict == "holds" else (verdict, cycle)


def _decide(where, number, prop, keep):
    """Return verdict and cycle of a property."""
    verdict, cycle = abc(where, [number], prop, keep=keep)
    if verdict == "unknown":
        return verdict, cycle
    reached = verdict == "violated"
    return ("reached" if reached else "failed") if prop.kind == "cover" else ("failed" if reached else "proven"), cycle
