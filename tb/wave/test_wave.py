"""The save file: its names exist in the waves of both simulators, and values are shown by name."""

import re

import cocotb
import pytest
import pywellen
from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles

from weft.hdl import abi, wire
from weft.hdl.params import preset
from weft.tb.flow.clock import start_clock
from weft.tb.flow.simulate import SIMULATORS, simulate
from weft.tb.wave import save as wave_save
from weft.tb.wave.layout import CARD, OVERVIEW
from weft.tb.wave.moments import Moment, first_loss
from weft.tb.wave.names import Design
from weft.tb.world.pcap import PcapWriter
from weft.tb.world.two_cards import TOP, two_cards_text

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


class Street(wiring.Component):
    """A lamp one level down, as the rooms of the card are."""

    o: Out(stream.Signature(Shown))
    entry: Out(512)
    code: Out(8)
    unused: In(1)

    def elaborate(self, _platform):
        m = Module()
        m.submodules.lamp = lamp = Lamp()
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
    recorded = {_spelled(var): var for var in pywellen.Waveform(str(waves)).all_vars()}
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


def _spelled(var):
    """A recorded signal's name as the save file writes it."""
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


def test_all_that_the_layout_names_is_in_the_card():
    design = Design(two_cards_text(preset("test")), TOP)
    groups = [(title, f"card_{side}", lines) for title, side, lines in OVERVIEW]
    groups += [(title, "card_b", lines) for title, lines in CARD]
    missing = {title: wave_save.traces(design, root, lines)[1] for title, root, lines in groups}
    assert {title: names for title, names in missing.items() if names} == {}
    states = [trace for _, root, lines in groups for trace in wave_save.traces(design, root, lines)[0]
              if trace.wire.name.endswith("_state")]
    assert states
    assert all(trace.values for trace in states)


def frame_of(opcode, psn):
    return wire.build_frame(opcode=opcode, dst_mac=2, src_mac=1, src_ip=1, dst_ip=2, sport=0xC000, dest_qp=3, psn=psn,
                            extensions=bytes(wire.header_bytes(opcode) - wire.RETH_OFFSET), payload=bytes(64))


def test_first_loss_is_found_in_the_captures(tmp_path):
    data_frames = [frame_of(wire.Opcode.WRITE_ONLY, number) for number in range(5)]    # 1 and 3 are lost
    other = frame_of(wire.Opcode.PROBE, 9)
    with PcapWriter(tmp_path / "a_to_b.sent.pcap") as sent:
        for at, one in enumerate([other, *data_frames]):
            sent.write(100 * at, one)
    assert first_loss(tmp_path) == []
    with PcapWriter(tmp_path / "a_to_b.arrived.pcap") as arrived:
        for at, one in ((1100, data_frames[0]), (1300, data_frames[2]), (1600, data_frames[4]),
                        (1900, frame_of(wire.Opcode.RETX_WRITE, 1))):
            arrived.write(at, one)
    assert first_loss(tmp_path) == [
        Moment("lost", 200, wire.Opcode.WRITE_ONLY, 1), Moment("next arrives", 1300, wire.Opcode.WRITE_ONLY, 2),
        Moment("retransmission arrives", 1900, wire.Opcode.RETX_WRITE, 1)]


@pytest.mark.parametrize("times", [(0, 3, 9), (1000.25, 11_000, 31_000), (2e6, 2.5e6), (700, 710, 720)])
def test_view_holds_every_marker(tmp_path, times):
    sentences = ("lost", "next arrives", "retransmission arrives")
    moments = [Moment(sentence, time, 0, 0) for sentence, time in zip(sentences, times, strict=False)]
    design = Design("module top(\n  clk);\n  input clk;\n  wire clk;\nendmodule\n", "top")
    with open(tmp_path / "waves.gtkw", "w") as file:
        wave_save.SaveFile(file, tmp_path / "waves.fst", design=design, names=tmp_path / "names",
                           escaped=False).moments(moments)
    text = (tmp_path / "waves.gtkw").read_text()
    zoom, _, *markers = re.search(r"^\*(.*)$", text, re.MULTILINE)[1].split()
    start = int(re.search(r"^\[timestart\] (\d+)$", text, re.MULTILINE)[1])
    wide = 2 ** -float(zoom) / wave_save.ZOOM_PIXELS * wave_save.WAVE_PIXELS
    at = [int(marker) for marker in markers[:len(times)]]
    assert at == [round(time * wave_save.PS_PER_NS) for time in times]
    assert start <= at[0] and at[-1] < start + wide
    for letter, moment in zip("ABC", moments, strict=False):
        assert f"[markername] {letter}{moment.sentence}" in text
