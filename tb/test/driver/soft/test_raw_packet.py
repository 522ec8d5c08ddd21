"""Packet of the document, field by field, and frames that are not packets."""

import random
import struct
import zlib

import pytest

from weft.driver.soft.raw.packet import (
    BROADCAST,
    ETHTYPE_RDMA,
    HEADER,
    REPLIES,
    REQUESTS,
    BadPacket,
    Fault,
    NackReason,
    Opcode,
    Packet,
    build,
    parse,
    seq_distance,
)

FIELDS = {"flags": 8, "src_qp": 16, "dst_qp": 16, "seq": 32, "local_mr_id": 32, "remote_mr_id": 32, "remote_addr": 64,
          "remote_key": 32, "dst_mac": 48, "src_mac": 48}


def random_packet(rng, opcode=None):
    opcode = opcode or rng.choice(list(Opcode))
    payload = rng.randbytes(rng.choice([0, 1, 5, 6, 7, 100, 1460]))
    if opcode in (Opcode.READ, Opcode.ACK, Opcode.NACK, Opcode.DISCOVER, Opcode.DISCOVER_REPLY):
        payload = b""
    length = rng.getrandbits(32) if opcode is Opcode.READ else len(payload)
    return Packet(opcode, **{name: rng.getrandbits(bits) for name, bits in FIELDS.items()}, length=length,
                  payload=payload)


def test_header_fields_are_those_of_the_document():
    """Fields in the document's order and widths, packed with ``struct``, which shares no code with Layout."""
    packet = Packet(Opcode.WRITE, dst_mac=0x525400123456, src_mac=0x525400123457, flags=0x12, src_qp=0x3456,
                    dst_qp=0x789A, seq=0xBCDEF012, local_mr_id=0x23456789, remote_mr_id=0xABCDEF01,
                    remote_addr=0x1122334455667788, length=8, remote_key=0x99AABBCC, payload=b"document")
    listed = struct.pack(">BBHHIIIQII", 0x01, 0x12, 0x3456, 0x789A, 0xBCDEF012, 0x23456789, 0xABCDEF01,
                         0x1122334455667788, 8, 0x99AABBCC)
    assert len(listed) == 34
    padded = listed + bytes(6)
    checksum = zlib.crc32(padded + b"document").to_bytes(4, "big")
    assert build(packet) == (bytes.fromhex("525400123456525400123457 8915") + listed + bytes(2) + checksum
                             + b"document").ljust(60, b"\0")


def test_frame_is_ethernet_header_payload():
    assert HEADER.size_bytes == 40 and ETHTYPE_RDMA == 0x8915
    frame = build(Packet(Opcode.WRITE, length=1460, payload=bytes(1460)))
    assert len(frame) == 14 + 1500 and frame[12:14] == b"\x89\x15"
    assert len(build(Packet(Opcode.ACK))) == 60


def test_opcodes_are_those_of_the_document():
    assert [(int(o), o.name) for o in list(Opcode)[:4]] == [(1, "WRITE"), (2, "READ"), (3, "READ_RESP"), (4, "ACK")]
    assert not REQUESTS & REPLIES and len(NackReason) == 5


def test_built_messages_are_parsed_back():
    rng = random.Random(1)
    for opcode in Opcode:
        for _ in range(20):
            packet = random_packet(rng, opcode)
            assert parse(build(packet)) == packet


def test_every_bit_flip_is_detected():
    """A flipped bit after the Ethernet header gives a wrong checksum, length or opcode, never another packet."""
    frame = build(random_packet(random.Random(2), Opcode.WRITE))
    seen = set()
    for at in range(14, len(frame)):
        for bit in range(8):
            damaged = bytearray(frame)
            damaged[at] ^= 1 << bit
            if frame == damaged:
                continue
            with pytest.raises(BadPacket) as bad:
                parse(bytes(damaged))
            seen.add(bad.value.fault)
    assert seen == {Fault.CHECKSUM, Fault.TRUNCATED, Fault.LENGTH, Fault.OPCODE}


@pytest.mark.parametrize(("change", "fault"), [
    (lambda f: f[:13], Fault.FOREIGN),
    (lambda f: f[:12] + b"\x08\x00" + f[14:], Fault.FOREIGN),
    (lambda f: f[:14], Fault.TRUNCATED),
    (lambda f: f[:53], Fault.TRUNCATED),
    (lambda f: f[:-1], Fault.TRUNCATED),
    (lambda f: f + b"\0", Fault.LENGTH),
    (lambda f: f[:14] + b"\x00" + f[15:], Fault.OPCODE),
    (lambda f: f[:14] + b"\x0A" + f[15:], Fault.OPCODE),
    (lambda f: f[:-1] + bytes([f[-1] ^ 1]), Fault.CHECKSUM),
])
def test_invalid_packet_is_described(change, fault):
    frame = build(Packet(Opcode.WRITE, length=100, payload=bytes(100)))
    with pytest.raises(BadPacket) as bad:
        parse(change(frame))
    assert bad.value.fault is fault


def test_value_too_large_for_its_field_is_rejected():
    with pytest.raises(ValueError, match="src_qp"):
        build(Packet(Opcode.ACK, src_qp=1 << 16))
    assert parse(build(Packet(Opcode.DISCOVER, BROADCAST))).dst_mac == BROADCAST


@pytest.mark.parametrize(("seq", "reference", "distance"), [
    (5, 3, 2), (3, 5, -2), (0, 0xFFFF_FFFF, 1), (0xFFFF_FFFF, 0, -1), (1 << 31, 0, -(1 << 31)),
    ((1 << 31) - 1, 0, (1 << 31) - 1)])
def test_distance_of_sequence_numbers(seq, reference, distance):
    assert seq_distance(seq, reference) == distance
