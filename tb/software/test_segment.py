"""Segmentation: the bytes of a request, packet by packet."""

import random

import pytest

from weft.driver.protocol.segment import Request, request_packets, split
from weft.driver.protocol.wrap import near
from weft.hdl import abi, wire
from weft.model.functional.transmit import work_packets


def packets_of(fields, pmtu_code):
    work = abi.WORK.unpack(abi.WORK.pack(pmtu=pmtu_code, **fields))
    return list(work_packets(work))


@pytest.mark.parametrize("seed", range(30))
def test_chunks_carry_every_byte_once(seed):
    rng = random.Random(seed)
    code = rng.choice(list(wire.PMTUS))
    pmtu = wire.PMTUS[code]
    sges = [
        (rng.randrange(1 << 40), rng.choice([0, 1, rng.randrange(5_000), rng.randrange(200_000)]), n)
        for n in range(rng.randint(1, 4))
    ]
    request = Request(1, sges, rng.randrange(1 << 40), 7, imm=rng.choice([None, 5]))
    pieces = split(request, rng.randrange(1 << 24), pmtu)
    assert request.packets == request_packets(request, pmtu)
    found, psn, remote = {}, request.psn, request.remote_va
    chunks = [(p, c) for p in pieces for c in p.chunks(8_192)]
    for i, (piece, chunk) in enumerate(chunks):
        fields = piece.work(*chunk)
        assert fields["length"] <= 8_192 and fields["psn"] == psn % (1 << 32)
        apart = request.imm is not None and request.packets > 1 and i == len(chunks) - 1
        assert (fields["remote_va"], fields["rkey"]) == (
            (request.remote_va, request.length) if apart else (remote, 7 if request.length or not request.imm else 0))
        got = packets_of(fields, code)
        assert len(got) == chunk[1]
        last = i == len(chunks) - 1
        assert fields["ack_req"] == last and (fields["opcode"] is abi.WorkOpcode.WRITE_IMM) == (
            last and request.imm is not None
        )
        for packet in got:
            assert (
                packet.length <= pmtu
                and packet.remote_va // pmtu == (packet.remote_va + max(packet.length, 1) - 1) // pmtu
            )
            found.update((packet.remote_va + k, (piece.lkey, packet.local_va + k)) for k in range(packet.length))
        psn, remote = psn + chunk[1], remote + fields["length"]
    expected, at = {}, request.remote_va
    for va, length, lkey in sges:
        expected.update((at + k, (lkey, va + k)) for k in range(length))
        at += length
    assert found == expected and psn == request.end_psn


@pytest.mark.parametrize("seed", range(10))
def test_any_packets_sent_again_are_the_same_packets(seed):
    rng = random.Random(seed)
    code = rng.choice([1, 3])
    request = Request(1, [(rng.randrange(1 << 40), rng.randrange(1, 60_000), 3)], rng.randrange(1 << 40), 7, imm=9)
    piece = split(request, 1_000, wire.PMTUS[code])[0]
    original = {p.psn: p for chunk in piece.chunks(4_096) for p in packets_of(piece.work(*chunk), code)}
    for _ in range(20):
        first = rng.randrange(piece.packets)
        count = rng.randint(1, piece.packets - first)
        again = packets_of(piece.work(first, count, rsn=50), code)
        assert [p.psn for p in again] == list(range(1_000 + first, 1_000 + first + count))
        assert [p.rsn for p in again] == list(range(50, 50 + count))
        for p in again:
            o = original[p.psn]
            assert (p.local_va, p.remote_va, p.length) == (o.local_va, o.remote_va, o.length)
        assert piece.work(first, count, 50)["ack_req"] == (first + count == request.packets)


@pytest.mark.parametrize(("imm", "rkey"), [(None, 7), (5, 0)])
def test_zero_length_is_one_packet(imm, rkey):
    request = Request(1, [], 0x1234, 7, imm=imm)
    (piece,) = split(request, 5, 1024)
    fields = piece.work(0, 1)
    assert (request.packets, list(piece.chunks()), fields["length"], fields["rkey"]) == (1, [(0, 1)], 0, rkey)


def test_an_immediate_behind_several_packets_says_where_and_how_long_the_message_is():
    request = Request(1, [(0x5000, 1_500, 3), (0x9000, 500, 4)], 0x1F00, 7, imm=5)
    *data, end = split(request, 100, 1024)
    assert [piece.packets for piece in data] == [3, 1] and not any(piece.last for piece in data)
    fields = end.work(0, 1)
    assert (fields["psn"], fields["remote_va"], fields["length"], fields["rkey"], fields["imm"], fields["ack_req"]) == (
        104, 0x1F00, 0, 2_000, 5, 1)
    assert request.packets == request_packets(request, 1024) == 5
    without = Request(1, request.sges, 0x1F00, 7)
    assert split(without, 100, 1024)[-1].last and without.packets == 4


@pytest.mark.parametrize(
    ("value", "reference", "expected"),
    [(5, 3, 5), (0, 255, 256), (255, 256, 255), (250, 3, -6), (3, 1_000, 1_027), (128, 0, -128)],
)
def test_near(value, reference, expected):
    assert near(value, reference, 8) == expected
