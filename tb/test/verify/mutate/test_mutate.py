"""Tests of mutation testing with a small block: a complete test kills mutants that survive a weaker one."""

import re
from pathlib import Path
from types import SimpleNamespace

import cocotb
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.verify.mutate import campaign, run
from weft.tb.verify.mutate.netlist import YosysFailed, draw, likeness, yosys
from weft.tb.verify.mutate.record import NotRecorded
from weft.tb.verify.mutate.sources import ROOT, closure, code_of
from weft.tb.verify.mutate.subsystems import TARGETS, WIRES, Target

BITS = 3


class Adder(wiring.Component):
    """``y`` is the sum, a cycle later. ``large``: ``a`` is above 5, with redundant logic. ``less``: ``a < b``."""

    a: In(BITS)
    b: In(BITS)
    y: Out(BITS + 1)
    large: Out(1)
    less: Out(1)

    def elaborate(self, platform):
        m = Module()
        above_4, above_5 = Signal(), Signal()
        m.d.comb += above_4.eq(self.a > 4)      # redundant: implied by the next one
        m.d.comb += above_5.eq(self.a > 5)
        m.d.comb += self.large.eq(above_4 & above_5)
        m.d.sync += self.y.eq(self.a + self.b)
        difference = Signal(BITS + 1)
        m.d.comb += [difference.eq(self.a - self.b), self.less.eq(difference[BITS])]    # the other bits are unused
        return m


class Apart(wiring.Component):
    """Two clocks sample ``a``. ``differ``: the samples differ. ``large``: the first is above 5 (redundant logic)."""

    a: In(BITS)
    differ: Out(1)
    large: Out(1)

    def elaborate(self, platform):
        m = Module()
        here, there = (Signal(BITS, reset_less=True) for _ in range(2))
        above_3 = Signal()
        m.d.sync += here.eq(self.a)
        m.d.mac += there.eq(self.a)
        m.d.comb += self.differ.eq(here != there)
        m.d.comb += above_3.eq(here > 3)
        m.d.comb += self.large.eq(above_3 & (here > 5))
        return m


async def add(dut, below):
    await start_clock(dut)
    for a in range(below):
        for b in range(below):
            dut.a.value, dut.b.value = a, b
            await RisingEdge(dut.clk)
            await RisingEdge(dut.clk)
            assert (int(dut.y.value), int(dut.large.value), int(dut.less.value)) == (a + b, a > 5, a < b)


@cocotb.test()
async def all_sums(dut):
    await add(dut, 1 << BITS)


@cocotb.test()
async def small_sums(dut):
    await add(dut, 2)


@pytest.mark.parametrize("cases", ["all_sums", "small_sums"])
def test_adder(cases):
    simulate(Adder(), name="adder", cases=__file__, tests=cases)


def test_apart():
    simulate(Apart(), name="apart", cases=__file__, tests="at_one_clock")


@cocotb.test()
async def at_one_clock(dut):
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    dut.rst.value = dut.mac_rst.value = dut.mac_clk.value = 0
    for a in (7, 0):
        dut.a.value = a
        for _ in range(2):
            await RisingEdge(dut.clk)
        assert (int(dut.differ.value), int(dut.large.value)) == (a > 0, a > 5)


def design_of(cases, test="test_adder[{}]"):
    """Return the adder, or another design, with one of its tests."""
    test = f"tb/test/verify/mutate/test_mutate.py::{test.format(cases)}"
    return campaign.designs([Target("adder", cases, ("tb/test/verify/mutate/test_mutate.py",), (test,))])[0]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "KEPT", tmp_path / "mutants")
    return tmp_path


def at(design, text, mode, port, choose=max):
    """Return a mutant of a cell from the first line of this file with ``text``, at its highest or lowest bit."""
    line = next(k for k, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)
    found = [mutation for mutation in draw(design.netlist, design.modules, 1000, 1)
             if (mutation.mode, mutation.port) == (mode, port)
             and any(re.search(rf"test_mutate\.py:{line}\b", source) for source in mutation.sources)]
    return campaign.Mutant(design, choose(found, key=lambda mutation: mutation.portbit))


def test_weak_test_leaves_survivors_and_results_are_cached(kept, monkeypatch):
    strong, weak = design_of("all_sums"), design_of("small_sums")
    high_bit = [at(design, "self.a + self.b", "const0", "Y") for design in (strong, weak)]
    seen, unseen = campaign.for_all(campaign.judge, high_bit, 2, lambda *_: None)
    assert "test_adder[all_sums]" in seen.detected_by and "tests failed: all_sums" in seen.problem
    assert not unseen.detected_by and not unseen.problem
    assert campaign.proof(high_bit[1]) == "", "a high bit is not a needless one"

    def refuse(*_):
        raise AssertionError("done twice")
    monkeypatch.setattr(campaign, "_replay", refuse)
    monkeypatch.setattr(campaign, "proven_equivalent", refuse)
    monkeypatch.setattr(campaign.record, "record", refuse)
    again = [campaign.Mutant(design_of(name), m.mutation) for name, m in zip(("all_sums", "small_sums"), high_bit,
                                                                            strict=True)]
    assert campaign.for_all(campaign.judge, again, 1, lambda *_: None) == [seen, unseen]
    assert campaign.proof(again[1]) == ""


def test_a_changed_test_repeats_its_own_runs(kept, monkeypatch):
    """The unchanged test still detects its mutant; a mutant that survived it meets the changed test alone."""
    simulations = [SimpleNamespace(test=name, env=(), module=name) for name in ("steady", "changed")]
    design = SimpleNamespace(netlist=SimpleNamespace(digest="netlist"), simulations=simulations)
    killed, alive = (SimpleNamespace(design=design, mutation=SimpleNamespace(options=name)) for name in ("one", "two"))
    code, ran = {"steady": "1", "changed": "1"}, []

    def replay(design, mutation, where, seed, limits, missing):
        for simulation in missing:
            ran.append((mutation.options if mutation else "sound", simulation.test, seed))
            problem = "failed" if mutation is killed.mutation and simulation.test == "steady" else ""
            yield {"test": simulation.test, "seconds": 1.0, "problem": problem}
            if problem:
                return
    monkeypatch.setattr(campaign, "_replay", lambda *call: list(replay(*call)))
    monkeypatch.setattr(campaign.sources, "digest", lambda module: code[module])
    first = [campaign.judge(mutant) for mutant in (killed, alive)]
    assert [outcome.detected_by for outcome in first] == ["steady", ""] and first[1].seconds == 4
    assert len(ran) == len(set(ran)) == 1 + 4 + 4
    ran.clear()
    code["changed"] = "2"
    assert [campaign.judge(mutant) for mutant in (killed, alive)] == first
    assert sorted(ran) == [(name, "changed", seed) for name in ("sound", "two") for seed in campaign.SEEDS]


def test_a_failed_baseline_is_not_kept(kept, monkeypatch):
    problems = ["failed", ""]
    design = SimpleNamespace(netlist=SimpleNamespace(digest="netlist"),
                             simulations=[SimpleNamespace(test="flaky", env=(), module="flaky")])
    monkeypatch.setattr(campaign.sources, "digest", lambda module: module)
    monkeypatch.setattr(campaign, "_replay",
                        lambda *_: [{"test": "flaky", "seconds": 1.0, "problem": problems.pop(0)}])
    with pytest.raises(campaign.BaselineFails, match="flaky fails with seed 1"):
        campaign.baseline(design, 1)
    assert campaign.baseline(design, 1) == campaign.baseline(design, 1) == {"flaky": 13.0}


def test_redundant_cell_is_proven_equivalent(kept):
    design = design_of("all_sums")
    needless, needed = (at(design, f"self.a > {k}", "const1", "Y") for k in (4, 5))
    assert "ABC" in campaign.proof(needless)
    assert campaign.proof(needed) == ""


def test_unread_bit_is_proven_equivalent(kept):
    design = design_of("all_sums")
    unread, read = (at(design, "self.a - self.b", "inv", "Y", choose) for choose in (min, max))
    assert "ABC" in campaign.proof(unread)
    assert campaign.proof(read) == ""


def test_two_clocks_are_distinguished(kept):
    """With one clock, two registers with the same input would be equivalent."""
    design = design_of("", "test_apart")
    needless, needed = at(design, "here > 3)", "const1", "Y"), at(design, "here != there", "const0", "Y")
    assert "ABC" in campaign.proof(needless)
    assert campaign.proof(needed) == ""


def test_yosys_has_a_processor_time_limit(tmp_path):
    """A multiplier and its mirror image, which SAT solvers do not finish."""
    (tmp_path / "m.v").write_text("module m(input [31:0] a, b, output y); assign y = a * b != b * a; endmodule\n")
    with pytest.raises(YosysFailed, match="after 1 s of processor time"):
        yosys(tmp_path, "read_verilog m.v; sat -prove y 0 m", 1)


def test_drawing_follows_the_rule_over_all_subsystems(kept):
    design = design_of("all_sums")
    first = list(campaign.mutants([design], 12, 1))
    assert first == list(campaign.mutants([design], 12, 1)) and len({m.name for m in first}) == 12
    assert first != list(campaign.mutants([design], 12, 2))
    assert campaign.share({"a": 900, "b": 90, "c": 1}, 100, 6) == {"a": 91, "b": 9, "c": 6}


def test_a_mutant_keeps_its_name_while_other_modules_change():
    body = "wire $procmux$12_Y\nwire input 24 \\port$59$0\nwire $auto$wreduce.cc:513:run$501\nconnect \\A $12\n"
    other = "wire $auto$wreduce.cc:513:run$7\nwire $procmux$9_Y\nwire input 24 \\port$6$0\nconnect \\A $12\n"
    assert likeness(body) == likeness(other) != likeness(other.replace("$12", "$13"))


def test_test_without_simulation_is_rejected(tmp_path):
    with pytest.raises(NotRecorded, match="does not show what it simulates"):
        campaign.record.record(
            {"tb/test/verify/mutate/test_mutate.py::test_every_file_of_the_gateware_is_mutated": ""}, tmp_path)


def test_every_file_of_the_gateware_is_mutated():
    owned = {file for target in TARGETS for file in target.files} | {*WIRES}
    blocks = {str(file.relative_to(ROOT)) for file in (ROOT / "hdl").rglob("*.py")
              if "def elaborate(" in file.read_text()}
    assert owned == blocks


def test_change_of_an_imported_file_is_detected():
    names = {file.name for file in closure("weft.tb.test.verify.mutate.test_mutate")}
    assert {"test_mutate.py", "clock.py", "campaign.py"} <= names
    assert not {"verilator.py", "simulate.py"} & {f.name for f in closure("weft.tb.test.hdl.ring.test_reader")}


def test_comments_docstrings_and_layout_are_not_code(tmp_path):
    def code(text):
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.py"
        file.write_text(text)
        return code_of(file)

    plain = code("def f(a):\n    return a\n")
    assert plain == code('"""Module."""\ndef f(a):\n    """Function."""\n    # why\n    return (a)\n')
    assert plain != code("def f(a):\n    return -a\n") and plain != code("def f(a):\n    'x'.strip()\n    return a\n")


class Fake:
    """The attributes of a mutant that the report needs."""

    def __init__(self, name):
        self.name, self.mutation, self.design = name, self, self
        self.place, self.target, self.subsystem = "somewhere", self, "ring"


@pytest.mark.parametrize(("text", "outcome", "status", "fraction"), [
    ("", "", 1, 0.5),                                       # survived
    ('[accepted]\nodd = "why not"', "", 1, 0.5),            # explained, but below the threshold
    ('[equivalent]\nodd = "why not"', "", 0, 1.0),
    ('[accepted]\ngone = "why not"', "", 1, 0.5),           # stale
    ("", "by a proof", 0, 1.0),
])
def test_verdict(tmp_path, monkeypatch, capsys, text, outcome, status, fraction):
    file = tmp_path / "survivors.toml"
    file.write_text(text)
    read = run.explained
    monkeypatch.setattr(run, "explained", lambda: read(file))
    monkeypatch.setattr(run, "REPORT", tmp_path / "mutants.json")
    monkeypatch.setattr(run, "designs", lambda targets: targets)
    monkeypatch.setattr(run, "mutants", lambda *_: [Fake("even"), Fake("odd")])
    monkeypatch.setattr(run, "judge", lambda m: campaign.MutantOutcome("a test" if m.name == "even" else "", "", 1.0))
    monkeypatch.setattr(run, "proof", lambda mutant: outcome)
    figures = {}
    monkeypatch.setattr(run, "merge_report", lambda rows, command, whole: figures.update({r.name: r for r in rows}))
    assert run.run() == status
    printed = capsys.readouterr().err
    assert ("gone" in printed) == ("gone" in text)
    assert figures["mutants_killed_fraction"].value == fraction and figures["mutants_killed"].value == 1


def test_survivors_file_is_well_formed(tmp_path):
    assert all(kind in run.KINDS for kind, _ in run.explained().values())
    broken = tmp_path / "survivors.toml"
    for text, word in (('[tolerated]\na = "b"', "tolerated"), ("[accepted]\na = 3", "one line"),
                       ('[accepted]\na = "b"\n[equivalent]\na = "b"', "twice")):
        broken.write_text(text)
        with pytest.raises(ValueError, match=word):
            run.explained(broken)
