"""Whether a fault can be seen at all: a proof that the faulty module and the sound one always do the same.

Both get the same inputs from their initial state on, whatever the inputs are; ABC, by register and
signal correspondence and property directed reachability, searches a run in which an output differs. First the module
of the fault alone, its blocks cut off (what goes to them counts as output); then the whole design. What has no
initial state, as what a memory shows before its first read, begins as 0 in both. Where there are several clocks they
are inputs as others, whose edges come in any order.
"""

import contextlib
import re

from weft.tb.sim.synth import yosys as tool
from weft.tb.verify.mutate.netlist import YosysFailed, limited, write_faulty, yosys

SECONDS = {"module": 60, "design": 60}      # of processor time: a machine under load ends nothing too early
LEFT = "left.aig"
SHALLOW, SHALLOW_S = "bmc3 -g -F 40", 20    # most faults show within a few cycles: then nothing more is tried
TWINS = f"&put;lcorr;&get;&write {LEFT}"        # registers of the one that are always like those of the other
SIGNALS = f"&scorr;&write {LEFT}"
_BITS = ("proc; memory_map; opt -full; setundef -init -zero; {clocks}; dffunmap; simplemap; techmap; opt; dffunmap; "
         "simplemap; aigmap; opt_clean; delete t:$scopeinfo; delete t:$assert")
_CLOCK = re.compile(r"^  wire input \d+ \\(?:\w+_)?clk$", re.MULTILINE)


def proven_equivalent(design, mutation, where):
    """How it is proven that ``mutation`` changes nothing, in words; empty if it is not."""
    for scope in SECONDS:
        try:
            if _decide(design, mutation, where, scope) == "snl_UNSAT":
                return f"ABC, by the {scope}"
        except YosysFailed:
            continue
    return ""


def _decide(design, mutation, where, scope):
    """ABC's word: ``snl_UNSAT`` (no output ever differs), ``snl_SAT`` or ``snl_UNK``."""
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
    """Passes that make clocks and asynchronous resets of a design part of its logic, or leave its one clock out."""
    return "clk2fflogic" if len(_CLOCK.findall(file.read_text())) > 1 else "async2sync"


def _is_constant_0(aiger):
    """Whether signal correspondence left nothing but an output that is 0. The other engine wants registers."""
    header, _, rest = aiger.read_bytes().partition(b"\n") if aiger.exists() else (b"", b"", b"")
    _, _, _, registers, outputs, gates, *_ = [*header.split(), *[b""] * 6]
    return (registers, outputs, gates) == (b"0", b"1", b"0") and rest.startswith(b"0\n")


def _abc(where, engine, seconds):
    """ABC's first word on ``differs.aig``."""
    status = where / "differs.status"
    status.unlink(missing_ok=True)
    with contextlib.suppress(YosysFailed):      # no verdict is one
        limited(tool.abc(f"&r differs.aig;{engine};write_status {status.name}"), where, seconds)
    return status.read_text().split()[0] if status.exists() else "snl_UNK"


def _cut(scope, top):
    """Passes that leave the one module ``top``."""
    if scope == "design":
        return f"hierarchy -top {top}; flatten; delete =* {top} %d"
    return f"select -set blocks {top}/c:* {top}/t:$* %d; expose -evert @blocks; delete =* {top} %d"
