"""Entries and frames that are packed by words, compared with their layouts for any values."""

import random

import pytest

from weft.driver.protocol.control import ControlFrame
from weft.driver.protocol.segment import Work
from weft.driver.queue.arrival import arrival
from weft.driver.queue.control_frames import ControlFrames, control_extension
from weft.driver.queue.descriptor import Descriptors
from weft.driver.queue.ring import HostToCardRing
from weft.driver.queue.words import place, words
from weft.hdl.contract import abi, wire
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop
from weft.tb.sim.flow.seed import drawn_seed

CONNECTION = ("pmtu", "sqpn", "dqpn", "dst_mac", "dst_ip", "sport")
ARRIVED = ("kind", "has_imm", "qpn", "generation", "psn", "base", "holes", "va", "key", "length", "imm", "src_ip")


def seeded():
    seed = drawn_seed()
    print(f"seed {seed}")
    return random.Random(seed)


def values(rng, layout, names):
    """Return a value for every field, often one at the end of its range."""
    most = {name: (1 << layout.by_name[name].width) - 1 for name in names}
    return {name: rng.choice([0, most[name], rng.randint(0, most[name])]) for name in names}


def named(layout, *absent):
    return [f.name for f in layout.fields if not f.name.startswith("_") and f.name not in absent]


def random_work(rng, names):
    """Return (fields of a :class:`Work`, fields of its descriptor), each with the fields ``names``."""
    fields, last = values(rng, abi.WORK, names), rng.randrange(2)
    imm = values(rng, abi.WORK, ["imm"]) if rng.random() < 0.5 else {}
    opcode = abi.WorkOpcode.WRITE_IMM if imm else abi.WorkOpcode.WRITE
    grown = {"psn": fields["psn"] + (rng.randrange(3) << 32), "last": last}     # the descriptor has 32 bits of a PSN
    return fields | imm | grown, fields | imm | {"opcode": opcode, "ack_req": last}


def test_descriptors():
    rng = seeded()
    of_chunk = named(abi.WORK, "phase", "check", "opcode", "ack_req", "retransmit", "rsn", "inline", "paced", "ect",
                     "imm", *CONNECTION)
    for again in [False, True] * 50:
        connection, (work, fields) = values(rng, abi.WORK, CONNECTION), random_work(rng, of_chunk)
        rsn = values(rng, abi.WORK, ["rsn"]) if again else {}
        assert Descriptors(**connection).pack([Work(**work, **rsn)]) == [
            abi.WORK.pack(retransmit=int(again), **connection, **fields, **rsn)]


def test_descriptors_with_payload():
    rng = seeded()
    here = named(abi.WORK_INLINE, "phase", "check", "opcode", "ack_req", "retransmit", "rsn", "inline", "paced", "ect",
                 "imm", "length", "data", *CONNECTION)
    for length in [*range(1, abi.INLINE_MAX + 1)] * 2:
        connection, (work, fields) = values(rng, abi.WORK, CONNECTION), random_work(rng, here)
        rsn = values(rng, abi.WORK, ["rsn"]) if rng.random() < 0.5 else {}
        payload = rng.randbytes(length)
        first, rest = (int.from_bytes(part, "little")
                       for part in (payload[:abi.INLINE_HEAD_BYTES], payload[abi.INLINE_HEAD_BYTES:]))
        before = abi.INLINE_DATA.pack(opcode=abi.WorkOpcode.INLINE_DATA, sqpn=connection["sqpn"], psn=fields["psn"],
                                      data=rest)
        entry = abi.WORK_INLINE.pack(inline=1, data=first, length=length, retransmit=len(rsn), **connection, **fields,
                                     **rsn)
        assert Descriptors(**connection).pack([Work(0, 0, length=length, inline=payload, **work, **rsn)]) == [
            before * (length > abi.INLINE_HEAD_BYTES) + entry]


def test_arrivals():
    rng = seeded()
    for kind in [abi.ReportKind.MESSAGE_END, abi.ReportKind.PROGRESS] * 50:
        entry = abi.REPORT_EVENT.pack(**values(rng, abi.REPORT_EVENT, named(abi.REPORT_EVENT)) | {"kind": kind})
        report, meant = arrival(entry), abi.REPORT_EVENT.unpack(entry)
        assert [getattr(report, name) for name in ARRIVED] == [getattr(meant, name) for name in ARRIVED]
        assert report.kind is kind


@pytest.mark.parametrize("opcode", sorted(wire.DRIVER_OPCODES | {wire.Opcode.PROBE}), ids=lambda o: o.name)
def test_control_frames(opcode):
    rng = seeded()
    connection = {name: rng.getrandbits(bits) for name, bits in (
        ("dst_mac", 48), ("src_mac", 48), ("src_ip", 32), ("dst_ip", 32), ("sport", 16), ("dest_qp", 24))}
    frames = ControlFrames(**connection)
    for length in (0, 64, 1, 0, 63, 64):
        frame = ControlFrame(opcode, rng.getrandbits(30), rsn=rng.getrandbits(30), syndrome=rng.getrandbits(8),
                             msn=rng.getrandbits(30), payload=rng.randbytes(length), limited=rng.random() < 0.5,
                             serial=rng.getrandbits(30))
        assert frames.build(frame) == wire.build_frame(
            opcode=opcode, psn=frame.psn, extensions=control_extension(frame), payload=frame.payload, **connection)


def test_a_ring_takes_several_entries_at_once_also_across_its_end():
    rng = seeded()
    ring = HostToCardRing(FunctionalDevice(EventLoop()), abi.Ring.SEND, 3)
    done = 0
    while done < 100:
        entries = [bytes([rng.getrandbits(8) & 0xFE]) + rng.randbytes(61) + bytes(2) for _ in range(rng.randint(1, 8))]
        places = [ring.push(entry, entry) for entry in entries]
        ring.ring_doorbell()
        for index, entry in zip(places, entries, strict=True):
            stored = ring.buffer.read(index % ring.depth * abi.BLOCK_BYTES, abi.BLOCK_BYTES)
            assert not abi.damage(stored) and stored[0] & 1 == 1 - index // ring.depth % 2
            assert bytes([stored[0] & 0xFE]) + stored[1:62] == entry[:62]
        done += len(entries)
        assert ring.advance(done % (2 * ring.depth)) == entries


def test_a_descriptor_of_two_entries_has_one_cookie():
    rng = seeded()
    ring = HostToCardRing(FunctionalDevice(EventLoop()), abi.Ring.SEND, 3)
    expected, entries, done = [], [], 0
    while done < 200:
        while ring.space > 1 and rng.random() < 0.8:
            entry = b"".join([bytes(1) + rng.randbytes(61) + bytes(2) for _ in range(rng.randint(1, 2))])
            index = ring.push(entry, len(expected))
            entries += [entry[at:at + 64] for at in range(0, len(entry), 64)]
            expected += [None] * (len(entry) // 64 - 1) + [len(expected)]
            assert index == len(expected) - 1
        ring.ring_doorbell()
        assert ring.unfinished == sum(cookie is not None for cookie in expected[done:])
        count = rng.randint(0, len(expected) - done)
        for index in range(done, len(expected)):
            assert ring.buffer.read(index % ring.depth * 64 + 1, 61) == entries[index][1:62]
        found = ring.advance((done + count) % (2 * ring.depth))
        assert found == [cookie for cookie in expected[done:done + count] if cookie is not None]
        done += count
    ring.ring_doorbell()
    ring.advance(ring.prod % (2 * ring.depth))
    while ring.space > 1:
        ring.push(bytes(64))
    with pytest.raises(BufferError, match="1 free slots"):
        ring.push(bytes(128))
    assert ring.space == 1


def test_only_complete_words_in_order():
    for parts in (["kind"], [("kind", 8)], ["length", "psn"], [("qpn", 24)]):
        with pytest.raises(ValueError, match="does not begin a word"):
            words(abi.REPORT_EVENT, *parts)
    assert place(wire.BTH, "ack_req", 32, "psn") == (0, 0xFF_FFFF)
    assert place(abi.REPORT_EVENT, "qpn", 32, "generation") == (24, 0xFF)
