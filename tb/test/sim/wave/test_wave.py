"""Tests of the save file: its names exist in the waves of both simulators, and values are shown by name."""

import re

import cocotb
import pytest
import pywellen
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles

from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.sim.pair.two_cards import TOP, inside, two_cards_text
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.wave import save as wave_save
from weft.tb.sim.wave.layout import CARD, OVERVIEW
from weft.tb.sim.wave.view import Design

CYCLES, END_NS = 60, 240
LAMPS = (
    "lamp: fsm_state o{colour count} entry<REPORT_RETIRE.kind> entry<REPORT_RETIRE.residue> code:Reason",
    "lamp: nothing*",
)


class Colour(enum.Enum, shape=2):
    RED = 0b01
    GREEN = 0b10


class Shown(data.Struct):
    colour: Colour
    count: 8


class Lamp(wiring.Component):
    """Changes its colour every few cycles."""

    o: Out(stream.Signature(Shown))
    entry: Out(512)
    code: Out(8)

    def elaborate(self, _platform):
        m = Module()
        count = Signal(8)
        m.d.sync += count.eq(count + 1)
        m.d.comb += [
            self.o.valid.eq(1), self.o.p.count.eq(count), self.code.eq(count[4:6]),
            self.entry.eq(abi.ReportKind.RETIRE << 1 | count << abi.REPORT_RETIRE.shift_of("residue")),
        ]
        with m.FSM():
            for state, colour, following in (("STOP", Colour.RED, "GO"), ("GO", Colour.GREEN, "SLOW"),
                                             ("SLOW", Colour.RED, "STOP")):
                with m.State(state):
                    m.d.comb += self.o.p.colour.eq(colour)
                    with m.If(count[:2] == 3):
                        m.next = following
        return m


class Judge(wiring.Component):
    """Takes a header every few cycles, like the card's block of this name."""

    def __init__(self):
        super().__init__({"i": In(stream.Signature(data.StructLayout({
            "header": data.StructLayout({"opcode": 8, "psn": 24})}))), "seen": Out(24)})

    def elaborate(self, _platform):
        m = Module()
        m.d.comb += self.i.ready.eq(1)
        with m.If(self.i.valid):
            m.d.sync += self.seen.eq(self.i.p.header.psn)
        return m


class Around(Elaboratable):
    """A block below a path of instance names."""

    def __init__(self, block, *names):
        self.block, self.names = block, names

    def elaborate(self, _platform):
        m = Module()
        name, *rest = self.names
        m.submodules[name] = Around(self.block, *rest) if rest else self.block
        return m


class Street(wiring.Component):
    """A lamp one level down, like the card's subsystems; and a window check at its path in card B."""

    o: Out(stream.Signature(Shown))
    entry: Out(512)
    code: Out(8)
    seen: Out(24)
    unused: In(1)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.lamp = lamp = Lamp()
        judge, count = Judge(), Signal(24)
        m.submodules.card_b = Around(judge, "receive", "window_check")
        m.d.sync += count.eq(count + 1)
        m.d.comb += [
            judge.i.valid.eq(count[:3] == 6), judge.i.p.header.psn.eq(count >> 3),
            judge.i.p.header.opcode.eq(wire.Opcode.WRITE_ONLY), self.seen.eq(judge.seen),
        ]
        wiring.connect(m, lamp.o, wiring.flipped(self.o))
        m.d.comb += [self.entry.eq(lamp.entry), self.code.eq(lamp.code)]
        return m


@cocotb.test()
async def lamp_changes(dut):
    await start_clock(dut)
    await ClockCycles(dut.clk, CYCLES)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_every_trace_is_in_the_waves_and_every_state_has_a_name(sim, tmp_path):
    run = simulate(Street(), name="wave", cases=__file__, sim=sim, waves=True)
    waves = next(path for path in (run / "waves.fst", run / "waves.vcd") if path.exists())
    design = Design((run.parent / "top.v").read_text(), "top")
    with open(tmp_path / "waves.gtkw", "w") as file:
        out = wave_save.SaveFile(file, waves, design=design, names=tmp_path / "names", escaped=sim == "icarus")
        out.group("lamps", "", LAMPS)
    assert not out.missing
    recorded = {spelled(var): var for var in pywellen.Waveform(str(waves)).all_vars()}
    assert set(out.paths) <= set(recorded), sorted(set(out.paths) - set(recorded))

    def shown(ending):
        path = next(path for path in out.paths if re.sub(r"\[.*|\\", "", path).endswith(ending))
        signal = recorded[path].signal
        return {signal.value_at(time) for time in range(0, END_NS * wave_save.PS_PER_NS, wave_save.PS_PER_NS)}

    for ending, names in (("fsm_state", ["STOP", "GO", "SLOW"]), ("payload.colour", ["RED", "GREEN"]),
                          ("code", [abi.Reason(value).name for value in range(4)])):
        trace = next(trace for trace in wave_save.traces(design, "", LAMPS)[0] if trace.wire.name.endswith(ending))
        seen = {trace.values[f"{value:0{trace.width}b}"] for value in shown(ending) if isinstance(value, int)}
        assert seen == set(names)
        translated = (tmp_path / "names" / f"{trace.values_name}.txt").read_text().splitlines()
        assert {line.rpartition("?")[2].split()[-1] for line in translated} >= seen


def spelled(var):
    """Return a recorded signal's name as the save file writes it."""
    name = re.sub(r"\s*\[\d+:\d+\]$", "", var.full_name)
    return f"{name}[{var.bitwidth - 1}:0]" if var.bitwidth and var.bitwidth > 1 else name


def test_part_of_an_entry_is_a_range_of_bits(tmp_path):
    design = Design("module top(\n  entry);\n  output [511:0] entry;\n  wire [511:0] entry;\nendmodule\n", "top")
    with open(tmp_path / "waves.gtkw", "w") as file:
        out = wave_save.SaveFile(file, tmp_path / "waves.fst", design=design, names=tmp_path / "names", escaped=False)
        out.group("entries", "", [".: entry<REPORT_NODE.kind>"])
    bits = " ".join(f"({bit})top.entry[511:0]" for bit in range(506, 511))      # bits 5 to 1, counted from the left
    text = (tmp_path / "waves.gtkw").read_text()
    assert f"#{{entry kind}} {bits}\n" in text
    names = (tmp_path / "names/ReportKind-5.txt").read_text()
    assert f"{abi.ReportKind.RETIRE:05b} RETIRE\n" in names
    assert "?red?QP_ERROR" in names


def test_reasons_are_not_red(tmp_path):
    """A reason keeps its value while nothing is dropped."""
    design = Design("module top(\n  why);\n  output [4:0] why;\n  wire [4:0] why;\nendmodule\n", "top")
    with open(tmp_path / "waves.gtkw", "w") as file:
        out = wave_save.SaveFile(file, tmp_path / "waves.fst", design=design, names=tmp_path / "names", escaped=False)
        out.group("drops", "", [".: why:Reason"])
    names = (tmp_path / "names/Reason-5.txt").read_text()
    assert f"{abi.Reason.DUPLICATE:05b} DUPLICATE\n" in names and "?red?" not in names


def test_signals_of_the_layout_exist_in_the_card():
    design = Design(two_cards_text(preset("test")), TOP)
    groups = [(title, inside(side), lines) for title, side, lines in OVERVIEW]
    groups += [(title, inside("b"), lines) for title, lines in CARD]
    missing = {title: wave_save.traces(design, root, lines)[1] for title, root, lines in groups}
    assert {title: names for title, names in missing.items() if names} == {}
    states = [trace for _, root, lines in groups for trace in wave_save.traces(design, root, lines)[0]
              if trace.wire.name.endswith("_state")]
    assert states
    assert all(trace.values for trace in states)
