"""Tests that Verilog means the same to Icarus, Verilator and Yosys, and that ambiguous designs are rejected."""

import random
import re
from importlib.metadata import version

import cocotb
import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.hdl._nir import CombinationalCycle
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from weft.hdl import verilog
from weft.hdl.verilog import lean_netlist
from weft.hdl.verilog.self_reading import SelfReading, self_reading
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.synth import lint

LIMIT = 4096


class Request(data.Struct):
    last: 1
    length: 16
    kind: 4
    address: 16


class Splitter(wiring.Component):
    """A field depends on another field; ``apart``: through a separate signal."""

    left: In(16)
    go: In(1)
    o: Out(Request)

    def __init__(self, *, apart):
        self.apart = apart
        super().__init__()

    def elaborate(self, _platform):
        m = Module()
        last = self.o.last
        if self.apart:
            last = Signal()
            m.d.comb += self.o.last.eq(last)
        with m.If(self.go):
            m.d.comb += [
                last.eq(self.left <= LIMIT),
                self.o.length.eq(Mux(last, self.left, LIMIT)),
                self.o.address.eq(self.left),
            ]
        return m


class Follower(wiring.Component):
    """A field is a copy of another one, without an operator in between."""

    i: In(16)
    go: In(1)
    o: Out(Request)

    def elaborate(self, _platform):
        m = Module()
        with m.If(self.go):
            m.d.comb += [self.o.address.eq(self.o.length), self.o.length.eq(self.i)]
        return m


class Pass(wiring.Component):
    i: In(16)
    o: Out(16)

    def elaborate(self, _platform):
        m = Module()
        m.d.comb += self.o.eq(self.i + 1)
        return m


class Around(wiring.Component):
    """A field depends on another one through a sub-block, or through a memory with an asynchronous read port."""

    i: In(16)
    o: Out(Request)

    def __init__(self, *, memory):
        self.memory = memory
        super().__init__()

    def elaborate(self, _platform):
        m = Module()
        if self.memory:
            m.submodules.memory = memory = Memory(shape=16, depth=16, init=[])
            port = memory.read_port(domain="comb")
            m.d.comb += [port.addr.eq(self.o.kind), self.o.length.eq(port.data), self.o.kind.eq(self.i)]
        else:
            m.submodules.block = block = Pass()
            m.d.comb += [block.i.eq(self.o.address), self.o.length.eq(block.o), self.o.address.eq(self.i)]
        return m


class Registered(wiring.Component):
    """A register's field depends on another one: that is not a combinational path."""

    o: Out(Request)

    def elaborate(self, _platform):
        m = Module()
        m.d.sync += [self.o.length.eq(self.o.length + 1), self.o.address.eq(self.o.length)]
        return m


class Constants(wiring.Component):
    """Constant slices, a constant switch, a process whose inputs never change, and memories."""

    i: In(4)
    o: Out(Request)
    late: Out(8)
    chosen: Out(8)
    filled: Out(8)
    listed: Out(8)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.filled = filled = Memory(shape=8, depth=16, init=[0x77] * 16)
        m.submodules.listed = listed = Memory(shape=8, depth=16, init=range(16))
        m.d.comb += [self.o.kind.eq(self.i), self.o.length.eq(0x1234), self.o.last.eq(1)]
        fixed = Signal(8)
        m.d.comb += fixed.eq(0x5A)
        with m.If(fixed[1]):
            m.d.comb += self.late.eq(fixed + 1)
        with m.Switch(self.late):
            with m.Case(0x5B):
                m.d.comb += self.chosen.eq(0xC3)
        for memory, port in ((filled, self.filled), (listed, self.listed)):
            read = memory.read_port(domain="comb")
            m.d.comb += [read.addr.eq(self.i), port.eq(read.data)]
        return m

    @staticmethod
    def expected(i):
        return {"o": 1 | 0x1234 << 1 | i << 17, "late": 0x5B, "chosen": 0xC3, "filled": 0x77, "listed": i}


@cocotb.test()
async def fields(dut):
    rng = random.Random(bench_seed())
    for _ in range(200):
        left, go = rng.choice((rng.randrange(1 << 16), rng.randrange(2 * LIMIT))), rng.randrange(2)
        dut.left.value, dut.go.value = left, go
        await Timer(1, "ns")
        last = left <= LIMIT
        assert dut.o.value.to_unsigned() == go * (last | (left if last else LIMIT) << 1 | left << 21), (left, go)


@cocotb.test()
async def constants(dut):
    await Timer(1, "ns")  # nothing is driven yet: outputs that do not depend on inputs have their values
    assert dut.late.value.to_unsigned() == 0x5B
    assert dut.chosen.value.to_unsigned() == 0xC3
    for i in range(16):
        dut.i.value = i
        await Timer(1, "ns")
        for name, value in Constants.expected(i).items():
            assert getattr(dut, name).value.to_unsigned() == value, (name, i)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_field_through_a_separate_signal_is_correct(sim):
    simulate(Splitter(apart=True), name="verilog_fields", cases=__file__, sim=sim, tests="fields")


def test_verilator_misreads_a_field_that_reads_another(monkeypatch):
    monkeypatch.setattr(verilog.text, "refuse_self_reading", lambda rtlil: None)
    text = verilog.verilog_text(verilog.rtlil_text(Splitter(apart=False), "top"))
    with pytest.raises(AssertionError, match="fields"):  # if it passes, the rejection is no longer necessary
        simulate(verilog=text, top="top", name="verilog_mistake", cases=__file__, sim="verilator", tests="fields",
                 seed=1)


@pytest.mark.parametrize("component", [Splitter(apart=False), Follower(), Around(memory=False), Around(memory=True)])
def test_field_that_reads_another_is_rejected(component):
    with pytest.raises(SelfReading, match=r"\bo in top\b"):
        verilog.verilog_text(verilog.rtlil_text(component, "top"))


@pytest.mark.parametrize("component", [Splitter(apart=True), Registered(), Constants()])
def test_other_fields_are_accepted(component):
    assert self_reading(verilog.rtlil_text(component, "top")) == []


@pytest.fixture
def as_amaranth_has_it(monkeypatch):
    """Return a function that writes RTLIL with Amaranth's code alone, without the faster replacements."""
    lean = lean_netlist.in_place

    def text(component):
        with monkeypatch.context() as patched:
            patched.setattr(lean_netlist, "in_place", lambda: lean(of=()))
            return verilog.rtlil_text(component, "top")

    return text


def test_lean_netlist_supports_this_amaranth():
    assert version("amaranth") in lean_netlist.KNOWN


class Operators(wiring.Component):
    """One of each operator of a netlist, narrow and wide, with constants in between."""

    a: In(70)
    b: In(signed(9))
    by: In(7)
    o: Out(70)
    p: Out(9)

    def elaborate(self, _platform):
        m = Module()
        a, b, by = self.a, self.b, self.by
        kept = Signal(70)
        with m.Switch(by):
            with m.Case(1, 2):
                m.d.sync += kept.eq(a * b + 3)
            with m.Case("1-----0"):
                m.d.sync += kept[5:40].eq(Cat(by, Const(0b1010, 4), ~b, a[60:]))
            with m.Default():
                m.d.sync += kept.bit_select(by, 3).eq(-b)
        m.d.comb += [
            self.o.eq(Mux(a.any() ^ b.all(), kept >> by, a - kept)),
            self.p.eq(Cat(a == kept, b < by, a.xor(), kept.word_select(by[:3], 4), by // 3 > by % 5)),
        ]
        return m


@pytest.mark.parametrize("made", [lambda: Splitter(apart=True), Constants, Operators])
def test_lean_netlist_equals_that_of_amaranth(made, as_amaranth_has_it):
    assert verilog.rtlil_text(made(), "top") == as_amaranth_has_it(made())


class Cycle(wiring.Component):
    """Two signals, each computed from the other.

    The operator's output bits depend on all its input bits; with ``apart``, on one each, and bit 0 on none of the loop.
    """

    i: In(8)
    o: Out(8)

    def __init__(self, *, apart):
        self.apart = apart
        super().__init__()

    def elaborate(self, _platform):
        m = Module()
        there = Signal(8)
        back = Signal(8)
        m.d.comb += [there.eq(self.i & back if self.apart else self.i + back), self.o.eq(there),
                     back.eq(Cat(self.i[3], there[1:]) if self.apart else there >> 3)]
        return m


@pytest.mark.parametrize("apart", [False, True])
def test_cycle_is_reported_as_by_amaranth(as_amaranth_has_it, apart):
    with pytest.raises(CombinationalCycle) as lean:
        verilog.rtlil_text(Cycle(apart=apart), "top")
    with pytest.raises(CombinationalCycle) as original:
        as_amaranth_has_it(Cycle(apart=apart))
    assert str(lean.value) == str(original.value) and "signal there" in str(lean.value)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_constants_have_their_value_from_time_zero(sim):
    simulate(Constants(), name="verilog_constants", cases=__file__, sim=sim, tests="constants")


def test_constants_have_their_value_in_yosys(tmp_path):
    path = tmp_path / "top.v"
    path.write_text(verilog.verilog_text(verilog.rtlil_text(Constants(), "top")))
    checks = " ".join(f"-prove {name} {value}" for name, value in Constants.expected(11).items())
    lint.yosys(path, f"read_verilog {path.name}; prep -flatten -top top; memory_map; opt; "
                     f"sat -verify -set i 11 {checks}")


def test_memory_of_one_value_is_filled_by_a_loop():
    text = verilog.verilog_text(verilog.rtlil_text(Constants(), "top"))
    assert len(re.findall(r"for \(row = 0; row <= 15; ", text)) == 1
    assert len(re.findall(r"\[\d+\] = 8'h", text)) == 16  # the other memory keeps its lines


def test_every_process_waits_for_something():
    text = verilog.verilog_text(verilog.rtlil_text(Constants(), "top"))
    processes, waiting = text.count("always @*"), re.compile(
        r"always @\* begin\n\s+if \(\\\$auto\$verilog_backend\S+ \) begin end\n")
    assert 0 < processes == len(waiting.findall(text))
