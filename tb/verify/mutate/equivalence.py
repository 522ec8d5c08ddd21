"""Proof that a fault is not observable: the faulty module and the sound one always have the same outputs.

Both get the same inputs from their initial state on, whatever the inputs are. ABC searches a run in which an output
differs, by register and signal correspondence and property directed reachability. The first proof covers the module of
the fault alone, with its blocks cut off (their inputs count as outputs); the second covers the whole design. State
without an initial value, such as the output of a memory before its first read, starts as 0 in both. Several clocks are
treated as inputs, with edges in any order.
"""

import contextlib
import re

from weft.tb.sim.synth import yosys as tool
from weft.tb.verify.mutate.netlist import YosysFailed, limited, write_faulty, yosys

SECONDS = {"module": 60, "design": 60}      # of processor time, so that machine load does not end a proof too early
LEFT = "left.aig"
SHALLOW, SHALLOW_S = "bmc3 -g -F 40", 20    # most faults show within a few cycles; then no other engine is tried
TWINS = f"&put;lcorr;&get;&write {LEFT}"        # merges registers that are always equal
SIGNALS = f"&scorr;&write {LEFT}"
_BITS = ("proc; memory_map; opt -full; setundef -init -zero; {clocks}; dffunmap; simplemap; techmap; opt; dffunmap; "
         "simplemap; aigmap; opt_clean; delete t:$scopeinfo; delete t:$assert")
_CLOCK = re.compile(r"^  wire input \d+ \\(?:\w+_)?clk$", re.MULTILINE)


def proven_equivalent(design, mutation, where):
    """Return the method by which ``mutation`` is proven to change nothing, in words; empty if it is not proven."""
    for scope in SECONDS:
        try:
            if _decide(design, mutation, where, scope) == "snl_UNSAT":
                return f"ABC, by the {scope}"
        except YosysFailed:
            continue
    return ""


def _decide(design, mutation, where, scope):
    """Return ABC's status: ``snl_UNSAT`` (no output ever differs), ``snl_SAT`` or ``snl_UNK``."""
    top = mutation.module if scope == "module" else design.top
    for side, fault in (("sound", None), ("faulty", mutation)):
        write_faulty(design, fault, where, f"{side}.il")
        yosys(where, f"read_rtlil {side}.il; {_cut(scope, top)}; rename {top} {side}; write_rtlil {side}.il",
              SECONDS[scope])
    bits = _BITS.format(clocks=_clocks(where / "sound.il"))
    yosys(where, f"read_rtlil sound.il; read_rtlil faulty.il; miter -equiv -flatten sound faulty miter; "
                 f"hierarchy -top miter; {bits}; write_aiger -zinit differs.aig", SECONDS[scope])
    word = ""
    for engine, seconds in ((TWINS, SECONDS[scope]), (f"&put;{SHALLOW}", SHALLOW_S),
                            (f"{SIGNALS};&put;pdr", 2 * SECONDS[scope])):
        (where / LEFT).unlink(missing_ok=True)
        word = _abc(where, engine, seconds)
        if _is_constant_0(where / LEFT):
            return "snl_UNSAT"
        if word == "snl_SAT":
            break
    return word


def _clocks(file):
    """Return passes that turn clocks and asynchronous resets of a design into logic, or remove its only clock."""
    return "clk2fflogic" if len(_CLOCK.findall(file.read_text())) > 1 else "async2sync"


def _is_constant_0(aiger):
    """Return True if signal correspondence left only an output that is 0. The next engine requires registers."""
    header, _, rest = aiger.read_bytes().partition(b"\n") if aiger.exists() else (b"", b"", b"")
    _, _, _, registers, outputs, gates, *_ = [*header.split(), *[b""] * 6]
    return (registers, outputs, gates) == (b"0", b"1", b"0") and rest.startswith(b"0\n")


def _abc(where, engine, seconds):
    """Return the first word of ABC's status for ``differs.aig``."""
    status = where / "differs.status"
    status.unlink(missing_ok=True)
    with contextlib.suppress(YosysFailed):      # a missing status is a valid result
        limited(tool.abc(f"&r differs.aig;{engine};write_status {status.name}"), where, seconds)
    return status.read_text().split()[0] if status.exists() else "snl_UNK"


def _cut(scope, top):
    """Return passes that leave only module ``top``."""
    if scope == "design":
        return f"hierarchy -top {top}; flatten; delete =* {top} %d"
    return f"select -set blocks {top}/c:* {top}/t:$* %d; expose -evert @blocks; delete =* {top} %d"
