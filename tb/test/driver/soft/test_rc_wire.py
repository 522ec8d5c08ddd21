"""Frames of the RoCEv2 endpoint, as others decode them: scapy computes the same ICRC, tshark the same headers."""

import random

import pytest

from weft.driver.soft.rc.opcodes import ATOMICS, EXTENSIONS, RcOpcode
from weft.driver.soft.rc.packet import Addresses, BadPacket, Fault, RcPacket, build, parse
from weft.hdl.contract import wire
from weft.tb.sim.link.pcap import PcapWriter
from weft.tb.test import tshark
from weft.tb.test.driver.soft.hosts import MACS
from weft.tb.test.driver.soft.rc_pair import IPS
from weft.tb.test.driver.soft.rc_traffic import traffic

TO = Addresses(mac=0x02_0000_0000_0B, ip=0x0A00_000B, own_mac=0x02_0000_0000_0A, own_ip=0x0A00_000A, sport=0xC000)


def random_packet(rng, opcode):
    size = rng.choice([0, 1, 2, 3, 4, 100, 256])
    fields = {field.name: rng.getrandbits(field.width) for header in EXTENSIONS[opcode] for field in header.fields
              if not field.name.startswith("_")}
    without = opcode in ATOMICS | {RcOpcode.READ_REQUEST, RcOpcode.ACKNOWLEDGE, RcOpcode.ATOMIC_ACKNOWLEDGE,
                                   RcOpcode.CNP}
    return RcPacket(opcode, rng.getrandbits(24), rng.getrandbits(24), rng.getrandbits(1),
                    b"" if without else rng.randbytes(size), TO.own_ip, **fields)


@pytest.mark.parametrize("opcode", list(RcOpcode))
def test_built_messages_are_parsed_back(opcode):
    rng = random.Random(int(opcode))
    for _ in range(10):
        packet = random_packet(rng, opcode)
        assert parse(build(packet, TO), TO.mac, TO.ip) == packet


def test_opcodes_without_headers_are_those_of_the_contract():
    for opcode in (wire.Opcode.WRITE_ONLY, wire.Opcode.WRITE_ONLY_IMM, wire.Opcode.ACKNOWLEDGE, wire.Opcode.CNP):
        assert EXTENSIONS[RcOpcode(opcode)] == wire.EXTENSIONS[opcode]


@pytest.mark.parametrize(("change", "fault"), [
    (lambda f: f[:57], Fault.FOREIGN),
    (lambda f: f[:12] + b"\x08\x06" + f[14:], Fault.FOREIGN),
    (lambda f: f[:14] + b"\x46" + f[15:], Fault.FOREIGN),
    (lambda f: f[:20] + b"\x20" + f[21:], Fault.FOREIGN),
    (lambda f: f[:36] + b"\x00\x35" + f[38:], Fault.FOREIGN),
    (lambda f: b"\x04" + f[1:], Fault.OTHER_HOST),
    (lambda f: f[:33] + b"\x07" + f[34:], Fault.OTHER_HOST),
    (lambda f: f[:-1], Fault.TRUNCATED),
    (lambda f: f + b"\0", Fault.LENGTH),
    (lambda f: f[:39] + bytes([f[39] ^ 4]) + f[40:], Fault.LENGTH),
    (lambda f: f[:-1] + bytes([f[-1] ^ 1]), Fault.ICRC),
    (lambda f: f[:60] + bytes([f[60] ^ 1]) + f[61:], Fault.ICRC),
    (lambda f: f[:24] + bytes([f[24] ^ 1]) + f[25:], Fault.HEADER),
])
def test_invalid_packet_is_described(change, fault):
    frame = build(RcPacket(RcOpcode.SEND_ONLY, 1, 2, payload=b"x" * 40), TO)
    with pytest.raises(BadPacket) as bad:
        parse(change(frame), TO.mac, TO.ip)
    assert bad.value.fault is fault


@pytest.mark.parametrize(("opcode", "extensions", "payload", "fault"), [
    (0x15, b"", b"", Fault.OPCODE), (0x64, b"", b"", Fault.OPCODE), (0xC0, b"", bytes(20), Fault.OPCODE),
    (RcOpcode.SEND_ONLY, b"odd", b"", Fault.LENGTH),
    (RcOpcode.WRITE_ONLY, bytes(12), b"", Fault.TRUNCATED), (RcOpcode.COMPARE_SWAP, bytes(24), b"", Fault.TRUNCATED),
    (RcOpcode.READ_REQUEST, bytes(16), b"more", Fault.LENGTH), (RcOpcode.ACKNOWLEDGE, bytes(4), b"m", Fault.LENGTH),
])
def test_missing_headers_are_described(opcode, extensions, payload, fault):
    """The ICRC is valid, the headers are not."""
    frame = wire.build_frame(opcode=opcode, dst_mac=TO.mac, src_mac=TO.own_mac, src_ip=TO.own_ip, dst_ip=TO.ip,
                             sport=1, dest_qp=1, psn=1, extensions=extensions, payload=payload)
    with pytest.raises(BadPacket) as bad:
        parse(frame, TO.mac, TO.ip)
    assert bad.value.fault is fault


def test_scapy_computes_the_same_icrc():
    from scapy.all import Ether
    from scapy.contrib import roce
    frames = [frame for _, frame in traffic(5).frames]
    frames += [build(random_packet(random.Random(int(opcode)), opcode), TO) for opcode in RcOpcode]
    seen = set()
    for frame in frames:
        packet = Ether(frame)
        bth = packet[roce.BTH]
        sent, bth.icrc = bth.icrc, None
        assert bytes(packet) == frame and sent == int.from_bytes(frame[-4:], "big")
        seen.add(bth.opcode)
    assert seen == set(RcOpcode)


def test_tshark_decodes_every_frame(tmp_path):
    """Check that tshark marks no frame as malformed and decodes the same fields.

    No packet has one or two bytes of payload: tshark takes those for an EtherType, and the bytes after them for a frame
    of that type.
    """
    tshark.need_tshark()
    pair = traffic(7, requests=70, lengths=(0, 3, 63, 256, 259, 1000))
    to = Addresses(MACS[1], IPS[1], MACS[0], IPS[0], 0xC000)
    pair.frames.append((0, build(RcPacket(RcOpcode.CNP, 0x118, 0), to)))
    with PcapWriter(tmp_path / "rc.pcap") as capture:
        for n, (_, frame) in enumerate(pair.frames):
            capture.write(1000 * n, frame)
    names = {"opcode": "infiniband.bth.opcode", "psn": "infiniband.bth.psn", "dest_qp": "infiniband.bth.destqp",
             "va": "infiniband.reth.va", "rkey": "infiniband.reth.r_key", "dma_length": "infiniband.reth.dmalen",
             "imm": "infiniband.immdt", "syndrome": "infiniband.aeth.syndrome", "msn": "infiniband.aeth.msn",
             "swap_add": "infiniband.atomiceth.swapdt", "compare": "infiniband.atomiceth.cmpdt",
             "original": "infiniband.atomicacketh.origremdt"}
    rows = tshark.fields(tmp_path / "rc.pcap", list(names.values()))
    assert len(rows) == len(pair.frames)
    seen = set()
    for (host, frame), row in zip(pair.frames, rows, strict=True):
        assert not row[tshark.MALFORMED], frame.hex()
        packet = pair.packet_of(frame, host)
        seen.add(packet.opcode)
        has = {field.name for header in EXTENSIONS[packet.opcode] for field in header.fields}
        for name, theirs in names.items():
            if row[theirs] and (name in has or name in ("opcode", "psn", "dest_qp")):
                text = row[theirs]
                value = int(text, 16) if name == "imm" else tshark.number(text)
                assert value == getattr(packet, name), (name, frame.hex())
            else:
                assert packet.opcode in ATOMICS or name not in has, (name, row)
    assert seen == set(RcOpcode)
