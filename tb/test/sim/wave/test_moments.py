"""Tests of the markers of the save file: found in the captures and the waves, and all of them in the view."""

import re

import pytest
import pywellen

from weft.hdl.contract import wire
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.sim.link.pcap import PcapWriter
from weft.tb.sim.wave import save as wave_save
from weft.tb.sim.wave.view import Design, Moment, first_loss, shown
from weft.tb.test.sim.wave import test_wave


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


@pytest.mark.slow
@pytest.mark.parametrize("sim", SIMULATORS)
def test_arrival_is_marked_at_its_header(sim):
    run = simulate(test_wave.Street(), name="wave", cases=test_wave.__file__, sim=sim, waves=True)
    waves = next(path for path in (run / "waves.fst", run / "waves.vcd") if path.exists())
    lost, arrives, never = (Moment(sentence, 10.5, wire.Opcode.WRITE_ONLY, psn) for sentence, psn in (
        ("lost", 3), ("next arrives", 4), ("retransmission arrives", 1000)))
    was_lost, arrived, came_not = shown([lost, arrives, never], waves, "top.card_b")
    assert (was_lost, came_not) == (lost, never)
    assert arrived.time_ns > arrives.time_ns
    signals = {name.rpartition("__")[2]: var.signal for var in pywellen.Waveform(str(waves)).all_vars()
               if "window_check.i__" in (name := test_wave.spelled(var).replace("\\", "").partition("[")[0])}

    def at(time_ns):
        time = round(time_ns * wave_save.PS_PER_NS)
        return signals["valid"].value_at(time), signals["payload.header.psn"].value_at(time)
    assert at(arrived.time_ns) == (1, 4) and at(arrived.time_ns - 4)[0] == 0
