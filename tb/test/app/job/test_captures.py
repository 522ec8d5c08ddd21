"""Tests of the main job's captures: tshark, scapy and decoder, which share no code with the card, read every packet."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from weft.hdl.contract.params import preset
from weft.tb.app.job.job import Job
from weft.tb.app.job.run import CASES
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.link.pcap import read_pcap
from weft.tb.sim.pair.two_cards import TOP, two_cards_text
from weft.tb.test.app.job.test_timeline import check as check_timeline
from weft.tb.test.decoder import DecodeError, decode
from weft.tb.test.tshark import MALFORMED, fields, need_tshark, number

CAPTURES = [f"{direction}.{subject}.pcap" for direction in ("a_to_b", "b_to_a") for subject in ("sent", "arrived")]
ACKNOWLEDGE, DATA = 0x11, {0x0A, 0x0B}
LOSS_REPORT, RETX = 0xC2, {0xC0, 0xC1}
BTH = {"infiniband.bth.opcode": "opcode", "infiniband.bth.psn": "psn", "infiniband.bth.destqp": "dest_qp",
       "infiniband.bth.a": "ack_req", "infiniband.bth.padcnt": "pad_count", "infiniband.bth.p_key": "pkey"}
RETH = {"infiniband.reth.va": "va", "infiniband.reth.r_key": "rkey", "infiniband.reth.dmalen": "dma_length"}
AETH = {"infiniband.aeth.syndrome": "syndrome", "infiniband.aeth.msn": "msn"}
IMMEDIATE = "infiniband.immdt"
# Headers that tshark decodes for each opcode; after the BTH of a manufacturer's opcode it decodes nothing.
KNOWN = {0x0A: BTH | RETH, 0x0B: BTH | RETH | {IMMEDIATE: "imm"}, ACKNOWLEDGE: BTH | AETH}
ICRC, ADDRESSES = "infiniband.invariant.crc", {"ip.src": "src_ip", "ip.dst": "dst_ip", "udp.srcport": "sport"}
NAMES = sorted({name for layout in KNOWN.values() for name in layout} | {ICRC, "udp.dstport", "ip.ttl"} | {*ADDRESSES})

CLEAN = {"loss": 0.0, "reorder": 0.0, "dup": 0.0, "corrupt": 0.0, "pmtu": 256, "qps": 2}
LOSSY = {"loss": 0.05, "reorder": 0.02, "dup": 0.02, "corrupt": 0.01, "pmtu": 1024, "qps": 2,
         "back_loss": 0.03, "back_corrupt": 0.03}


def run_main_job(folder, size, settings):
    """Run the main job; return the folder of the captures, and the report."""
    file = folder / "file"
    file.write_bytes(random.Random(size).randbytes(size))
    job = Job(file=str(file), rtt_us=4.0, seed=5, preset="test", sim="verilator",
              folder=str(folder), timeline=True, **settings)
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             cases=CASES, seed=5, env=job.environment())
    return folder / "captures", json.loads((folder / "report.json").read_text())


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    need_tshark()
    return run_main_job(tmp_path_factory.mktemp("clean"), 30_001, CLEAN)


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    need_tshark()
    return run_main_job(tmp_path_factory.mktemp("lossy"), 300_003, LOSSY)


def as_number(name, text):
    """Return a tshark field as an int."""
    if name == IMMEDIATE:
        return int(text, 16)    # shown as bytes
    if text.count(".") == 3:
        return int.from_bytes(bytes(map(int, text.split("."))), "big")
    return number({"True": "1", "False": "0"}.get(text, text))


def check_tshark(row, packet):
    """Check that tshark decodes the frame without a complaint, like the decoder."""
    assert not row[MALFORMED], row
    wanted = KNOWN.get(packet.opcode, BTH) | ADDRESSES
    fields = {name: as_number(name, row[name]) for name in wanted}
    assert fields == {name: getattr(packet, field) for name, field in wanted.items()}
    if row[ICRC]:
        assert number(row[ICRC]) == int.from_bytes(packet.icrc, "big")
    else:
        assert packet.opcode not in KNOWN
    return bool(row[ICRC])


def check_scapy(frame, packet):
    """Check that scapy decodes the same, and computes the ICRC of the frame."""
    from scapy.all import Ether
    from scapy.contrib.roce import BTH as ScapyBth

    whole = Ether(frame)
    bth = whole[ScapyBth]
    assert (bth.opcode, bth.psn, bth.dqpn, bth.ackreq, bth.padcount) == (
        packet.opcode, packet.psn, packet.dest_qp, packet.ack_req, packet.pad_count)
    bth.icrc = None
    assert bytes(whole)[-4:] == packet.icrc == frame[-4:]


def check_capture(path, damaged=0):
    """Check every frame except up to ``damaged`` ones; return opcodes, and the number of ICRCs that tshark found."""
    frames, rows = [frame for _, frame in read_pcap(path)], fields(path, NAMES)
    assert len(frames) == len(rows) > 0
    opcodes, seen, bad = Counter(), 0, 0
    for frame, row in zip(frames, rows, strict=True):
        try:
            packet = decode(frame)       # also recomputes the ICRC
        except DecodeError:
            bad += 1
            assert bad <= damaged, path
            continue
        opcodes[packet.opcode] += 1
        seen += check_tshark(row, packet)
        check_scapy(frame, packet)
    return opcodes, seen


def check_all(folder, damaged):
    """Check all four captures; return the opcodes of both directions together, as sent."""
    sent = Counter()
    for name in CAPTURES:
        direction, subject = name.split(".")[:2]
        opcodes, seen = check_capture(folder / name, damaged[direction] if subject == "arrived" else 0)
        assert seen == sum(opcodes[opcode] for opcode in KNOWN)
        if subject == "sent":
            sent += opcodes
    return sent


def corrupted(report):
    return {direction: counters["corrupted"]["all"] for direction, counters in report["link"].items()}


def test_captures_of_a_clean_run_are_valid(clean):
    folder, report = clean
    sent = check_all(folder, corrupted(report))
    assert sent[0x0A] + sent[0x0B] == report["packets_sent"] and sent[ACKNOWLEDGE]


def test_captures_of_a_lossy_run_are_valid(lossy):
    folder, report = lossy
    sent = check_all(folder, corrupted(report))
    assert sum(sent[opcode] for opcode in RETX) == report["packets_retransmitted"] > 0
    assert sent[LOSS_REPORT] and sent[ACKNOWLEDGE]
    assert sum(corrupted(report).values()), "no frame was damaged"


def test_captured_payload_is_the_file(clean):
    """The payloads at the addresses of their RETHs are the file."""
    folder, report = clean
    pieces = {}
    for _, frame in read_pcap(folder / "a_to_b.sent.pcap"):
        packet = decode(frame)
        if packet.opcode in DATA and packet.payload:   # the immediate has a separate packet with the base address
            pieces[packet.va] = packet.payload
    data = b"".join(pieces[va] for va in sorted(pieces))
    assert data == Path(report["file"]).read_bytes()


def test_timeline_of_a_lossy_run(lossy):
    folder, report = lossy
    check_timeline(folder.parent / "timeline.json", report)
