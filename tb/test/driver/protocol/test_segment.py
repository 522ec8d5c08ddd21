"""Segmentation of the bytes of a request into packets."""

import random

import pytest

from weft.driver.protocol.message_end import Kind, MessageEnd, message_end, place
from weft.driver.protocol.segment import Request, split
from weft.driver.protocol.wrap import near
from weft.driver.queue.descriptor import Descriptors
from weft.hdl.contract import abi, wire
from weft.model.functional.data_frame import work_frames


def packets_of(work, pmtu_code):
    (entry,) = Descriptors(pmtu=pmtu_code, sqpn=1, dqpn=2, dst_mac=3, dst_ip=4, sport=0xC000).pack([work])
    return list(work_frames(abi.WORK.unpack(entry)))


def end_of(work):
    """Return the message end that a packet without payload contains."""
    assert work.imm is not None and not work.length and work.last
    return message_end(work.remote_va, work.rkey, work.imm)


def random_targets(rng, length):
    """Return one to four destinations for ``length`` bytes, some of them empty."""
    cuts = sorted(rng.choices(range(length + 1), k=rng.randrange(4)))
    return [(rng.randrange(1 << 40), 50 + n, b - a)
            for n, (a, b) in enumerate(zip([0, *cuts], [*cuts, length], strict=True))]


@pytest.mark.parametrize("seed", range(30))
def test_chunks_carry_every_byte_once(seed):
    rng = random.Random(seed)
    code = rng.choice(list(wire.PMTUS))
    pmtu = wire.PMTUS[code]
    sges = [
        (rng.randrange(1 << 40), rng.choice([0, 1, rng.randrange(5_000), rng.randrange(200_000)]), n)
        for n in range(rng.randint(1, 4))
    ]
    length = sum(n for _, n, _ in sges)
    request = Request(1, sges, rng.randrange(1 << 40), 7, imm=rng.choice([None, 5]), sequence=9)
    if seed % 3 == 0:
        request.imm, request.end = None, MessageEnd(Kind.SEND_DATA, 9, length)
        request.targets = random_targets(rng, length)
    pieces = split(request, rng.randrange(1 << 24), pmtu)
    places = request.targets or [(request.remote_va, 7, length)]
    expected = list(zip(((va + k, key) for va, n, key in sges for k in range(n)),
                        ((va + k, key) for va, key, n in places for k in range(n)), strict=True))
    found, psn, ended = [], request.psn, None
    chunks = [(p, c) for p in pieces for c in p.chunks(8_192)]
    for i, (piece, chunk) in enumerate(chunks):
        work = piece.work(*chunk)
        assert work.length <= 8_192 and work.psn == psn
        assert work.last == (last := i == len(chunks) - 1)
        assert (work.imm is not None) == (last and (request.imm is not None or request.end is not None))
        got = packets_of(work, code)
        assert len(got) == chunk[1]
        for packet in got:
            assert (
                packet.length <= pmtu
                and packet.va // pmtu == (packet.va + max(packet.length, 1) - 1) // pmtu
            )
            found += [((packet.local_va + k, piece.lkey), (packet.va + k, piece.rkey))
                      for k in range(packet.length)]
        psn += chunk[1]
        ended = work
    assert found == expected and psn == request.end_psn == request.psn + request.packets
    if request.end is not None:
        assert end_of(ended) == request.end
    elif request.imm is not None and request.packets > 1:
        assert end_of(ended) == MessageEnd(Kind.WRITE_IMM, 9, length, imm=5, has_imm=1)
    else:
        assert ended.rkey == 7 or not length


@pytest.mark.parametrize("seed", range(10))
def test_retransmitted_packets_are_identical(seed):
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
            assert (p.local_va, p.va, p.length) == (o.local_va, o.va, o.length)
        assert piece.work(first, count, 50).last == (first + count == request.packets)


def test_write_of_zero_length_is_one_packet():
    (piece,) = split(request := Request(1, [], 0x1234, 7), 5, 1024)
    work = piece.work(0, 1)
    assert (request.packets, list(piece.chunks()), work.length, work.remote_va, work.rkey) == (
        1, [(0, 1)], 0, 0x1234, 7)
    assert work.imm is None and work.last


@pytest.mark.parametrize(("sges", "solicited", "packets"), [
    ([], False, 1), ([(0x5000, 100, 3)], True, 2), ([(0x5000, 1_500, 3), (0x9000, 500, 4)], False, 5)])
def test_immediate_that_does_not_fit_has_a_separate_packet(sges, solicited, packets):
    request = Request(1, sges, 0x1F00, 7, imm=5, sequence=77, solicited=solicited)
    *data, end = split(request, 100, 1024)
    assert not any(piece.last for piece in data) and request.packets == packets
    work = end.work(0, 1)
    assert work.psn == 100 + packets - 1
    assert end_of(work) == MessageEnd(Kind.WRITE_IMM, 77, request.length, imm=5, has_imm=1, solicited=solicited)
    without = Request(1, sges, 0x1F00, 7)
    assert split(without, 100, 1024)[-1].last and without.packets == max(1, packets - 1)


def test_short_write_with_an_immediate_is_one_packet():
    (piece,) = split(Request(1, [(0x5000, 100, 3)], 0x1F00, 7, imm=5), 100, 1024)
    work = piece.work(0, 1)
    assert (work.imm, work.length, work.rkey) == (5, 100, 7)


def test_message_end_has_16_bytes_and_is_parsed_back():
    end = MessageEnd(Kind.ATOMIC_RESULT, (1 << 24) - 1, (1 << 32) - 1, 0x1234_5678, 0x9ABC_DEF0, 1, 1)
    va, key, imm = end.words()
    assert message_end(va, key, imm) == end and end.value == 0x1234_5678_9ABC_DEF0
    assert max(va >> 64, key >> 32, imm >> 32) == 0
    end = MessageEnd(Kind.READ, 1, 2, place(3, 16))
    assert (end.slot, end.targets) == (3, 16)


@pytest.mark.parametrize(
    ("value", "reference", "expected"),
    [(5, 3, 5), (0, 255, 256), (255, 256, 255), (250, 3, -6), (3, 1_000, 1_027), (128, 0, -128)],
)
def test_near(value, reference, expected):
    assert near(value, reference, 8) == expected
