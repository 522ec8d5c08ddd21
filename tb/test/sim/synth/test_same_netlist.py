"""Tests of the comparison of netlists up to names."""

import re
from collections import Counter

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hdl.verilog import rtlil_text
from weft.tb.sim.synth.same_netlist import main


def _text(first="first", second="second", swap=False):
    class Inner(wiring.Component):
        def __init__(self):
            super().__init__({first: In(8), second: In(8), "o": Out(8)})

        def elaborate(self, platform):
            m = Module()
            operands = getattr(self, first), getattr(self, second)
            with m.If(operands[0] > operands[1]):
                m.d.sync += self.o.eq(operands[swap] - operands[not swap])
            return m

    class Outer(wiring.Component):
        x: In(8)
        y: In(8)
        o: Out(8)

        def elaborate(self, platform):
            m = Module()
            m.submodules[first] = inner = Inner()
            m.d.comb += [getattr(inner, first).eq(self.x), getattr(inner, second).eq(self.y), self.o.eq(inner.o)]
            return m

    return rtlil_text(Outer(), "top")


def test_only_names_may_differ(tmp_path):
    texts = {"old": _text(), "renamed": _text("zulu", "alpha"), "swapped": _text(swap=True)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    compared = {name: main(["compare", str(tmp_path / "old"), str(tmp_path / name)]) for name in texts}
    assert texts["renamed"] != texts["old"]
    assert compared == {"old": 0, "renamed": 0, "swapped": 1}


def test_the_netlist_of_a_card_is_written_and_compared(tmp_path):
    written, changed = tmp_path / "before.il", tmp_path / "after.il"
    assert main(["write", "test", str(written)]) == 0
    text = written.read_text()
    kinds = Counter(re.findall(r"^  cell (\$\w+) ", text, re.MULTILINE))
    assert min(kinds[kind] for kind in ("$add", "$eq", "$mux")) > 100
    changed.write_text(text.replace("cell $add ", "cell $sub ", 1))
    assert main(["compare", str(written), str(changed)]) == 1
