"""Tests of shared expressions: one cell for all uses in a module, with renamed clock domains too."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import pytest
from amaranth.hdl import Cat, DomainRenamer, Module, Signal, _xfrm
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hdl import verilog
from weft.hdl.verilog import shared_values

WIDTH = 8


class Bits(wiring.Component):
    """Each bit of a mask, and the mask of its result, used one by one, in two domains and in a module inside."""

    a: In(WIDTH)
    b: In(WIDTH)
    o: Out(WIDTH)
    p: Out(WIDTH)

    def __init__(self, *, inside=False):
        self.inside = inside
        super().__init__()

    def elaborate(self, _platform):
        m = Module()
        mask = self.a & self.b
        again = Cat(bit ^ self.a[0] for bit in mask) | self.b
        m.d.sync += self.o.eq(Cat(bit for bit in mask))
        m.d.comb += self.p.eq(Cat(bit for bit in again))
        if self.inside:
            m.submodules.inner = inner = Module()
            q = Signal(WIDTH)
            inner.d.sync += q.eq(mask)
        return m


def cells(component, kind):
    """Return the number of cells of a kind by module."""
    found = {}
    for line in verilog.rtlil_text(component, "top").splitlines():
        if line.startswith("module "):
            module = line.split()[1]
        elif line.startswith(f"  cell ${kind} "):
            found[module] = found.get(module, 0) + 1
    return found


def replaced():
    """Return the attributes of Amaranth's classes that get replacements."""
    return [dict(vars(owner)) for owner in (_xfrm.ValueTransformer, _xfrm.FragmentTransformer)]


@pytest.fixture(params=[False, True], ids=["as amaranth has it", "shared"])
def shared(request, monkeypatch):
    if not request.param:
        in_place = shared_values.in_place
        monkeypatch.setattr(shared_values, "in_place", lambda: in_place(of=()))
    return request.param


@pytest.mark.parametrize("renamed", [False, True])
def test_an_expression_is_one_cell_for_all_its_bits(shared, renamed):
    component = DomainRenamer("mac")(Bits()) if renamed else Bits()
    count, = cells(component, "and").values()
    assert count == 1 if shared else count > 2 * WIDTH
    count, = cells(component, "or").values()
    assert count == 1 if shared else count == WIDTH


def test_each_module_has_its_cell():
    assert cells(Bits(inside=True), "and") == {"\\top": 1, "\\top.inner": 1}


def test_replacements_end_with_their_context_and_support_this_amaranth():
    before = replaced()
    with shared_values.in_place():
        assert "on_value" in vars(_xfrm.ValueTransformer)
    assert replaced() == before
    assert version("amaranth") in shared_values.KNOWN


def test_threads_may_elaborate_at_once():
    """Each thread gets the text of a single one, and the process is left as it was."""
    kinds, before = [False, True] * 20, replaced()
    alone = {inside: verilog.rtlil_text(Bits(inside=inside), "top") for inside in kinds}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            texts = list(pool.map(lambda inside: verilog.rtlil_text(Bits(inside=inside), "top"), kinds))
    finally:
        sys.setswitchinterval(interval)
    assert texts == [alone[inside] for inside in kinds]
    assert replaced() == before
    assert gc.isenabled()
