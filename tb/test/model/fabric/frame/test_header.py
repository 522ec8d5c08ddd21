"""Frames as switches see them: marks, classes and hashes."""

import random

import pytest

from weft.hdl.contract import wire
from weft.hdl.contract.abi import Reason
from weft.model.fabric.frame.header import (
    can_be_marked,
    can_be_trimmed,
    hash_of,
    is_control,
    is_group,
    marked,
    trimmed,
)
from weft.model.functional.parse import parse
from weft.tb.test.model.fabric.frame.frames import MAC, frame


@pytest.mark.parametrize("tos", [1, 2, 0x69, 0x6A, 0xFD, 0xFE])
def test_a_mark_keeps_checksum_and_icrc(tos, seed):
    rng = random.Random(seed)
    for _ in range(50):
        sent = frame(rng.randrange(200), 1, tos=tos, sport=rng.randrange(1 << 16), payload=4 * rng.randrange(99))
        found = marked(sent)
        assert can_be_marked(sent) and found[15] == tos | 3 and found[26:] == sent[26:] and len(found) == len(sent)
        assert wire.ipv4_checksum(found[14:34]) == 0 and found[-4:] == wire.icrc(found[:-4])
        assert marked(found) == found


def test_a_card_accepts_a_marked_packet():
    header, _ = parse(marked(frame(0, 1, payload=16)), mac=MAC + 1, ip=0x0A00_0002)     # a RETH of length 0
    assert header.kind == "DATA" and header.reason is Reason.OK


def test_a_card_counts_the_headers_of_a_trimmed_packet_as_truncated():
    """They keep addresses, PSN and path, and have the class of control frames."""
    sent = frame(3, 1, payload=256, sport=50_000, psn=9)
    found = trimmed(sent)
    assert len(found) == wire.DATA_HEADER_BYTES and found[26:] == sent[26:wire.DATA_HEADER_BYTES]
    assert is_control(found) and hash_of(found) == hash_of(sent) and wire.ipv4_checksum(found[14:34]) == 0
    header, _ = parse(found, mac=MAC + 1, ip=0x0A00_0002)
    assert header.reason is Reason.TRUNCATED
    assert can_be_trimmed(sent) and not can_be_trimmed(found) and not can_be_trimmed(bytes(200))


def test_a_tagged_packet_is_marked_behind_its_tag():
    plain = frame(0, 1)
    tagged = plain[:12] + b"\x81\x00\x00\x00" + plain[12:]
    assert marked(tagged) == marked(plain)[:12] + b"\x81\x00\x00\x00" + marked(plain)[12:]
    assert hash_of(tagged) == hash_of(plain) and not can_be_marked(frame(0, 1, tos=0))


def test_classes():
    """Probes wait with the data that they must not overtake."""
    control = {wire.Opcode.ACKNOWLEDGE, wire.Opcode.LOSS_REPORT, wire.Opcode.CNP, wire.Opcode.REPORT_REQUEST,
               wire.Opcode.RECEIVE_LIMIT}
    for opcode in (*wire.Opcode, wire.UD_SEND_ONLY):
        assert is_control(frame(0, 1, opcode=opcode, payload=16)) == (opcode in control)
    assert not is_control(bytes(14)) and not is_control(b"")


def test_the_source_port_changes_the_hash():
    hashes = {hash_of(frame(0, 1, sport=sport, psn=psn)) for sport in range(49152, 49252) for psn in (0, 1)}
    assert len(hashes) == 100
    assert hash_of(frame(0, 1)) != hash_of(frame(1, 0))


def test_bytes_of_a_stranger_have_a_class_and_a_hash(seed):
    """Cut and damaged frames raise nothing."""
    rng, whole = random.Random(seed), frame(0, 1, payload=64)
    for _ in range(2000):
        data = bytearray(whole[:rng.randrange(len(whole) + 1)])
        for _ in range(min(len(data), rng.randrange(4))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        found = bytes(data)
        assert 0 <= hash_of(found) <= 0xFFFF_FFFF and is_control(found) in (True, False)
        if can_be_marked(found):
            assert len(marked(found)) == len(found)


def test_groups_of_a_link_are_not_forwarded():
    assert is_group(b"\xff" * 6) and is_group(bytes.fromhex("01005e000001"))
    assert not is_group(bytes.fromhex("0180c2000001")) and not is_group(bytes.fromhex("020000000001"))
