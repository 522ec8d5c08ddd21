"""Model checker: ABC of the wheel ``pyosys``, on the bits of a specification."""

import hashlib
import json
from dataclasses import replace

from weft.tb.sim.flow.process import cpu_seconds, output_of
from weft.tb.sim.synth import yosys
from weft.tb.verify.proof.specification import BEFORE, FIRST, STEP, TOP

BASE = 3    # cycles after the first in the base case of an induction
LATE_S = 60     # wall-clock time after the limit of processor time
_spared = []    # CPU seconds of results that were stored


def _read(where, spec, text):
    """Return the script that reads and flattens a specification, and frees the registers that may start anywhere."""
    (where / "spec.il").write_text(text)
    steps = ["read_rtlil spec.il", f"hierarchy -top {TOP}", "proc", "flatten"]
    for path in spec.anywhere:      # the path is a register or a memory
        steps += [f"select -assert-any w:{path} a:init %i t:$meminit_v2 r:MEMID=\\{path} %i %u",
                  f"setattr -unset init w:{path}", f"delete t:$meminit_v2 r:MEMID=\\{path} %i"]
    return [*steps, *_join(spec, words=False)]


def _join(spec, words):
    """Return the script that connects observed wires inside the block, or words of memories, to a specification."""
    return [step for k, path in enumerate(spec.probes) if ("[" in path) == words
            for step in (f"delete -input w:inside_{k}", f"connect -nomap -set inside_{k} {path}")]


def _run(where, steps):
    status, output = output_of(yosys.yosys("; ".join(steps)), cwd=where, timeout_s=600)
    if status != 0:
        raise AssertionError(f"{where}: Yosys does not read the specification\n{output[-3000:]}")


def write_bits(where, spec, text, outputs=None, step=False):
    """Write the specification as an and-inverter graph, ``bits.il``: all, or some outputs and optionally the step."""
    others = "w:property_*" if step else f"w:property_* w:{STEP} %u"
    prune = f"delete -output {others} {_but(outputs)}" if outputs else ""
    words = any("[" in path for path in spec.probes)    # a memory that is not read elsewhere must not be removed
    _run(where, [*_read(where, spec, text), "chformal -remove", "" if words else prune, f"prep -top {TOP}",
                 "memory_map", *_join(spec, words=True), "async2sync", prune if words else "", "opt -full",
                 "setundef -anyseq", "dffunmap", "simplemap", "techmap", "opt_expr", "opt_clean", "dffunmap",
                 "simplemap", "aigmap", "opt_clean", "delete t:$scopeinfo", "write_rtlil bits.il"])


def _but(outputs):
    """Return the selection that excludes some outputs."""
    return " ".join(f"w:property_{k} %d" for k in outputs)


def abc(where, outputs, prop, *, keep=True, simplify=True):
    """Decide with ABC whether outputs of the specification, one or several together, are ever violated.

    A stored result of the same graph is used, unless ``keep`` is false. Return ``holds``, ``violated`` or ``unknown``,
    and the cycle of the violation, or the last one that was checked, or None.
    """
    name = f"{outputs[0]}-{prop.kind}"
    prune, frames = f"delete -output o:* {_but(outputs)}", None if prop.bound is None else prop.bound + 1
    if frames is None:
        engine = f"{'&scorr;' if simplify else ''}&put;{'orpos;' if len(outputs) > 1 else ''}pdr"
    else:
        engine = f"{prop.simplify};&put;bmc3 -F {frames}"
    words = _check(where, name, prune, engine, prop.seconds, frames, keep)
    if words[0] == "snl_SAT":
        return "violated", int(words[4])
    if words[0] == "snl_UNSAT":
        return "holds", None
    if words[0] == "snl_UNK" and prop.bound is None and simplify:     # also if nothing was left to prove
        return abc(where, outputs, prop, keep=keep, simplify=False)
    return "unknown", int(words[1]) if words[0] == "snl_UNK" else None


def _check(where, name, prune, engine, seconds, frames, keep):
    """Run an engine of ABC on the specification without some outputs; return the words of its status.

    ``snl_UNK`` becomes ``snl_UNSAT`` if all ``frames`` were checked without a violation.
    """
    graph, status = where / f"{name}.aig", where / f"{name}.status"
    graph.unlink(missing_ok=True)
    status.unlink(missing_ok=True)
    _run(where, [f"read_rtlil bits.il; cd {TOP}; {prune}; cd; opt_clean; write_aiger -zinit {graph.name}"])
    kept = _kept(graph, engine)
    if keep and kept.exists():
        known = json.loads(kept.read_text())
        _spared.append(known["seconds"])
        return known["status"]
    start = cpu_seconds()
    output_of(yosys.abc(f"&r {graph.name};{engine} -T {seconds};write_status {status.name}"), cwd=where,
              timeout_s=seconds + LATE_S)
    words = status.read_text().split()[:5] if status.exists() else ["none"]
    if frames and words[0] == "snl_UNK" and int(words[1]) + 1 >= frames:
        words[0] = "snl_UNSAT"
    if words[0] in ("snl_SAT", "snl_UNSAT"):
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps({"status": words, "seconds": round(cpu_seconds() - start, 1)}))
    return words


def _kept(graph, engine):
    """Return the file of the result of an engine on a graph. Other specifications or texts may have the same graph.

    The comment after the gates is left out: it contains the version of Yosys.
    """
    gates = graph.read_bytes().rpartition(b"c\nGenerated by")[0]
    content = b"\0".join([gates, engine.encode(), yosys.version().encode()])
    return graph.parents[1] / "graphs" / f"{hashlib.sha256(content).hexdigest()[:24]}.json"


def seconds_spent():
    """Return the CPU seconds of this process and its children, plus those of the stored results that were used."""
    return cpu_seconds() + sum(_spared)


def induct(where, outputs, prop, keep=True):
    """Prove all checks together by induction: they hold at first, and a cycle after any state in which they hold.

    Return ``holds``, ``violated`` (in a run from the start) or ``unknown``, and the cycle of the violation or None.
    """
    verdict, cycle = abc(where, outputs, replace(prop, kind="base", bound=BASE), keep=keep)
    if verdict != "holds":
        return verdict, cycle
    words = _check(where, "held", f"delete -output o:*; expose w:{BEFORE}", "&put;bmc3 -F 2", prop.seconds, 2, keep)
    if words[0] != "snl_SAT":
        return "unknown", None      # otherwise the step would be vacuous
    anywhere = f"delete -output o:* o:{STEP} %d; setattr -unset init w:* w:{FIRST} w:{BEFORE} %u %d"
    words = _check(where, "step", anywhere, "&dc2;&put;bmc3 -F 2", prop.seconds, 2, keep)
    return ("holds" if words[0] == "snl_UNSAT" else "unknown"), None
