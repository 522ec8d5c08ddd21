"""Packets of the document and opcodes of the card, as tshark decodes them with the dissector."""

import random
import subprocess
import sys

import pytest

from weft.driver.soft.dissector import CARD, OWN_OPCODES, RAW, lua
from weft.driver.soft.raw.packet import HEADER, Opcode, Packet, build, parse
from weft.hdl.contract import abi, wire
from weft.model.functional.node import encode_body
from weft.tb.sim.link.pcap import PcapWriter
from weft.tb.test import tshark
from weft.tb.test.driver.soft.hosts import BAD_LINK
from weft.tb.test.driver.soft.raw_pair import RawPair
from weft.tb.test.driver.soft.test_raw_packet import random_packet


@pytest.fixture
def read(tmp_path):
    """Return a function that decodes fields of frames with tshark and the dissector."""
    tshark.need_tshark()
    script = tmp_path / "weft.lua"
    script.write_text(lua())

    def read_frames(frames, names):
        with PcapWriter(tmp_path / "frames.pcap") as capture:
            for n, frame in enumerate(frames):
                capture.write(1000 * n, frame)
        return tshark.fields(tmp_path / "frames.pcap", names, ["-X", f"lua_script:{script}"])
    return read_frames


def test_packets_of_the_document(read):
    rng = random.Random(1)
    pair = RawPair(link=BAD_LINK)
    for n in range(20):
        pair.post(0, Opcode.READ if n % 2 else Opcode.WRITE, length=2000, wr_id=n)
    pair.ends[0].rdma_discover(0, 0)
    pair.done(0, 20)
    frames = [frame for _, frame in pair.frames] + [build(random_packet(rng, opcode)) for opcode in Opcode]
    names = [field.name for field in HEADER.fields if not field.name.startswith("_")]
    rows = read(frames, [f"{RAW}.{name}" for name in names] + [f"{RAW}.payload"])
    for frame, row in zip(frames, rows, strict=True):
        assert not row[tshark.MALFORMED]
        packet = parse(frame)
        for name in names:
            if name != "checksum":
                assert tshark.number(row[f"{RAW}.{name}"]) == getattr(packet, name), name
        assert tshark.number(row[f"{RAW}.checksum"]) == int.from_bytes(frame[50:54], "big")
        assert bytes.fromhex(row[f"{RAW}.payload"]) == packet.payload
    assert {parse(frame).opcode for frame in frames} == set(Opcode)


def test_truncated_packets_are_marked(read):
    frame = build(Packet(Opcode.WRITE, length=200, payload=bytes(200)))
    rows = read([frame, frame[:200], frame[:54], frame[:40], frame[:14]], [f"{RAW}.opcode", f"{RAW}.short"])
    assert [bool(row[f"{RAW}.short"]) for row in rows] == [False, True, True, True, True]


def test_only_opcodes_of_the_card_are_decoded(read):
    """The dissector decodes no other opcodes."""
    rng, frames, wanted = random.Random(1), [], []
    for opcode, headers in wire.EXTENSIONS.items():
        extensions, values = b"", {f"{CARD}.opcode": int(opcode)}
        for header in headers:
            fields = {field.name: rng.getrandbits(field.width) for field in header.fields
                      if not field.name.startswith("_")}
            extensions += header.pack(**fields)
            values |= {f"{CARD}.{header.name.lower()}.{name}": value for name, value in fields.items()}
        frames.append(wire.build_frame(
            opcode=opcode, dst_mac=2, src_mac=1, src_ip=1, dst_ip=2, sport=0xC000, dest_qp=5, psn=7,
            extensions=extensions, payload=rng.randbytes(64) if opcode is wire.Opcode.LOSS_REPORT else b""))
        wanted.append(values if opcode in OWN_OPCODES else {})
    names = {name for values in wanted for name in values}
    assert len(names) == 1 + 3 + 1 + 1 + 2 and len(OWN_OPCODES) == 6
    for row, values in zip(read(frames, sorted(names)), wanted, strict=True):
        assert {name: tshark.number(row[name]) for name in names if row[name]} == values


@pytest.mark.parametrize(("encoding", "holes", "words"), [
    (abi.Encoding.LIST, [0, 3, 4, 500], "16777210, 16777213-16777214, 494"),
    (abi.Encoding.RUNS, [0, 1, 2, 70, 71], "16777210-16777212, 64-65"),
    (abi.Encoding.BITMAP, [0, *range(5, 319)], "16777210, 16777215-312")])
def test_a_loss_report_shows_its_holes(read, encoding, holes, words):
    """The PSN wraps between the holes."""
    node = abi.NODE.pack(count=len(holes), encoding=encoding, base_psn=(1 << 24) - 6, rsn=77,
                         body=encode_body(encoding, holes))
    frame = wire.build_frame(opcode=wire.Opcode.LOSS_REPORT, dst_mac=2, src_mac=1, src_ip=1, dst_ip=2, sport=0xC000,
                             dest_qp=5, psn=7, extensions=wire.RSNH.pack(rsn=77), payload=node)
    names = [f"{CARD}.node.{name}" for name in ("count", "encoding", "base_psn", "rsn", "holes")]
    row, = read([frame], [*names, "_ws.col.Info"])
    assert [row[name] for name in names] == [str(len(holes)), str(int(encoding)), str((1 << 24) - 6), "77", words]
    assert f"LOSS_REPORT QP 0x000005 PSN 7, {len(holes)} holes from PSN 16777210" in row["_ws.col.Info"]


def test_dissector_is_printed():
    done = subprocess.run([sys.executable, "-m", "weft.driver.soft.dissector"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, lua())
