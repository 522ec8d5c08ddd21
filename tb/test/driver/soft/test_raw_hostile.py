"""Bad input at the document's protocol: counted and dropped, or NACKed; no peer makes anything grow."""

import os
import random

import pytest

from weft.driver.soft.raw.packet import BROADCAST, NackReason, Opcode, Packet, build, parse
from weft.driver.soft.raw.qp import MAX_INFLIGHT, MAX_OOO, State
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.driver.soft.hosts import MACS
from weft.tb.test.driver.soft.raw_pair import RawPair, all_good, statuses
from weft.tb.test.driver.soft.test_raw_packet import random_packet

SEED = drawn_seed(__name__)
FRAMES = int(os.environ.get("WEFT_FRAMES") or 10_000)


def packet(pair, opcode=Opcode.WRITE, seq=0, payload=b"evil", **changes):
    """Return a packet to host 1 as its peer would send it, except for ``changes``."""
    mr = pair.mr[1]
    fields = {"dst_mac": MACS[1], "src_mac": MACS[0], "src_qp": pair.qp[0][0], "dst_qp": pair.qp[1][0], "seq": seq,
              "remote_mr_id": mr.id, "remote_addr": mr.vaddr, "remote_key": mr.key, "length": len(payload),
              "payload": payload} | changes
    return build(Packet(opcode, **fields))


@pytest.mark.parametrize(("changes", "counter"), [
    ({"src_mac": 0x02_0000_0000_66}, "foreign_sender"),
    ({"src_qp": 7}, "foreign_sender"),
    ({"dst_qp": 7}, "unknown_qp"),
    ({"dst_mac": 0x02_0000_0000_66}, "other_host"),
    ({"dst_mac": BROADCAST}, "other_host"),
    ({"seq": MAX_OOO}, "far_sequence_numbers"),
    ({"seq": 1 << 31}, "far_sequence_numbers"),
    ({"seq": (1 << 32) - MAX_INFLIGHT - 1}, "far_sequence_numbers"),
    ({"opcode": Opcode.ACK, "length": 0, "payload": b""}, "unasked_replies"),
    ({"opcode": Opcode.NACK, "length": 0, "payload": b""}, "unasked_replies"),
    ({"opcode": Opcode.READ_RESP}, "unasked_replies"),
    ({"opcode": Opcode.PONG}, "unasked_replies"),
    ({"opcode": Opcode.DISCOVER_REPLY, "length": 0, "payload": b""}, "unasked_replies"),
])
def test_unexpected_packet_is_counted_and_dropped(changes, counter):
    pair = RawPair()
    pair.inject(1, packet(pair, **changes))
    assert pair.ends[1].counts == {counter: 1}
    assert not pair.frames and not pair.poll(1) and not any(pair.mr[1].data)


def test_unknown_qp_is_dropped():
    pair = RawPair()
    pair.inject(1, packet(pair, dst_qp=1))
    pair.inject(1, build(Packet(Opcode.DISCOVER, BROADCAST, MACS[0], dst_qp=1)))
    assert pair.ends[1].counts == {"unknown_qp": 1} and not pair.frames


@pytest.mark.parametrize("cut", [0, 5, 13, 14, 30, 53, 54, 60, 99])
def test_truncated_frame_is_counted_and_dropped(cut):
    pair = RawPair()
    pair.inject(1, packet(pair, payload=bytes(50))[:cut])
    counts = pair.ends[1].counts
    assert sum(counts.values()) == counts["truncated"] + counts["foreign"] == 1
    assert not pair.frames and not pair.poll(1)


def test_foreign_damaged_packet_is_not_nacked():
    pair = RawPair()
    for changes in ({"src_mac": 5}, {"src_qp": 9}, {"dst_mac": 5}, {"dst_qp": 3}):
        frame = packet(pair, **changes)
        pair.inject(1, frame[:-1] + b"\x01" if len(frame) > 60 else frame[:54] + b"EVIL" + frame[58:])
    assert pair.ends[1].counts["checksum"] == 4 and not pair.frames


@pytest.mark.parametrize(("opcode", "length"), [(Opcode.ACK, 0), (Opcode.READ_RESP, 63), (Opcode.READ_RESP, 65)])
def test_response_unlike_its_request_is_dropped(opcode, length):
    pair = RawPair()
    pair.links[0].drop = lambda frame: pair.loop.now_ns < 500_000
    pair.post(0, Opcode.READ, length=64)
    pair.soon()
    pair.inject(0, build(Packet(opcode, MACS[0], MACS[1], length=length, payload=b"x" * length)))
    pair.inject(0, build(Packet(Opcode.NACK, MACS[0], MACS[1], flags=99)))
    assert pair.ends[0].counts["mismatched_replies"] == 2
    assert not pair.poll(0) and not any(pair.mr[0].data)
    assert all_good(pair.done(0, 1))


def test_duplicate_response_counts_once():
    pair = RawPair()
    pair.fill(1, b"first")
    pair.post(0, Opcode.READ, length=5)
    assert all_good(pair.done(0, 1))
    answer = pair.frames[1][1]
    pair.fill(0, b"later")
    pair.inject(0, answer)
    assert bytes(pair.mr[0].data[:5]) == b"later" and pair.ends[0].counts["unasked_replies"] == 1


def test_read_of_more_than_a_packet_is_rejected():
    """A frame of 60 bytes requests four gigabytes."""
    pair = RawPair()
    for seq, length in enumerate((1461, (1 << 32) - 1)):
        pair.inject(1, packet(pair, Opcode.READ, payload=b"", length=length))
        assert [p.flags for p in pair.sent(1)][seq] == NackReason.BOUNDS
    assert pair.ends[1].counts["nack_bounds"] == 2 and pair.state(1).rx_expected_seq == 0


def test_early_packets_do_not_overrun_the_queue():
    pair = RawPair(qps=4, buffers=64)
    for _ in range(3):
        for q in range(4):
            for seq in range(1, 100):
                pair.hosts[1].arrive(packet(pair, seq=seq, src_qp=pair.qp[0][q], dst_qp=pair.qp[1][q]))
    assert sum(len(pair.state(1, q).ooo_queue) for q in range(4)) == 32 == pair.ends[1].buffers.used
    counts = pair.ends[1].counts
    assert counts["out_of_order"] == 32 and counts["out_of_memory"] and counts["far_sequence_numbers"] == 3 * 4 * 68
    assert counts["nack_no_memory"] == counts["out_of_memory"]
    assert pair.post(1) == 0 and all_good(pair.done(1, 1)), "the host can still send"


def test_completions_of_the_peer_do_not_overrun_the_queue():
    pair = RawPair()
    for seq in range(200):
        pair.inject(1, packet(pair, seq=seq))
        pair.inject(1, packet(pair, seq=pair.state(1).rx_expected_seq))
    assert len(pair.state(1).cq) == 128 and pair.ends[1].counts["cq_full"]
    assert len(pair.poll(1)) == 128


def test_flood_of_inquiries_is_answered_without_state():
    pair = RawPair(tx_queue=16)
    pair.hosts[1].port.space = 0
    for n in range(200):
        pair.inject(1, build(Packet(Opcode.PING, MACS[1], MACS[0] + n, seq=n, length=1000, payload=bytes(1000))))
        pair.inject(1, build(Packet(Opcode.DISCOVER, BROADCAST, MACS[0] + n, seq=n, dst_qp=pair.qp[1][0])))
    assert len(pair.ends[1].transmit) == 16 and pair.ends[1].counts["tx_queue_full"] == 384
    assert not pair.ends[1].inquiries._asked


def test_peer_in_error_gets_no_response():
    pair = RawPair()
    pair.state(1).state = State.ERROR
    pair.inject(1, packet(pair))
    assert pair.ends[1].counts == {"not_connected": 1} and not pair.frames


def mutated(rng, frame):
    """Return a frame with an error: bits, length, or random fields with a valid checksum."""
    kind = rng.choice([0, 1, 2, 3, 3])
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    if kind == 1:
        return frame[:rng.randrange(len(frame) + 1)] + rng.randbytes(rng.choice([0, 0, 1, 40]))
    if kind == 2:
        frame = bytearray(frame)
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        return bytes(frame)
    changed, drawn = parse(frame), random_packet(rng)
    for name in rng.sample(["flags", "src_qp", "dst_qp", "seq", "remote_mr_id", "remote_addr", "remote_key"], 2):
        setattr(changed, name, rng.choice([0, 1, getattr(drawn, name)]))
    if rng.random() < 0.3:
        changed = drawn
        changed.dst_mac, changed.src_mac, changed.dst_qp, changed.src_qp = MACS[1], MACS[0], 0, 0
        changed.seq = rng.randrange(64)
    return build(changed)


def test_random_and_mutated_frames_raise_nothing():
    """The connection continues to work, and no object exceeds its limit."""
    again = f"WEFT_SEED={SEED} WEFT_FRAMES={FRAMES} python -m pytest tb/test/driver/soft/test_raw_hostile.py -k mutated"
    rng, sent, good = random.Random(SEED), 0, 0
    seen = set()
    while sent < FRAMES:
        pair = RawPair(size=8192, seed=f"{SEED}/{sent}")
        pair.links[0].drop = lambda frame: rng.random() < 0.3
        for n in range(20):
            pair.post(0, rng.choice([Opcode.WRITE, Opcode.READ]), length=rng.choice([0, 10, 3000]), wr_id=n)
            pair.post(1, rng.choice([Opcode.WRITE, Opcode.READ]), length=rng.choice([0, 10, 3000]), wr_id=n)
        pair.run(limit_ns=rng.randrange(10**6))
        own = [frame for _, frame in pair.frames]
        for _ in range(500):
            frame = mutated(rng, rng.choice(own))
            try:
                pair.inject(rng.randrange(2), frame)
            except Exception as error:
                raise AssertionError(f"{frame.hex()}: {again}") from error
            pair.poll(0)
            pair.poll(1)
        sent += 500
        for end in pair.ends:
            seen |= set(end.counts)
            assert end.buffers.used <= end.buffers.size and len(end.regions) == 1, again
            assert len(end.qps.get(0).ooo_queue) <= MAX_OOO and len(end.qps.get(0).inflight) <= MAX_INFLIGHT, again
        pair.links[0].drop = None
        for n in range(2):
            if pair.state(n).state is not State.ERROR:
                good += 1
    assert good, again
    assert {"foreign", "truncated", "length", "opcode", "checksum", "unknown_qp", "foreign_sender", "other_host",
            "far_sequence_numbers", "unasked_replies", "duplicates", "nack_access", "nack_bounds"} <= seen, again


def test_invalid_frames_change_nothing():
    """Frames that are not packets of the peer change nothing."""
    rng = random.Random(SEED)
    pair = RawPair()
    data = rng.randbytes(60_000)
    pair.fill(0, data)
    for n in range(10):
        pair.post(0, length=6000, at=6000 * n, to=6000 * n, wr_id=n)
    queue = pair.state(0).cq
    while len(queue) < 10:
        pair.run(lambda: len(queue) == 10, limit_ns=2000)
        for _ in range(20):
            wrong = random_packet(rng)
            wrong.dst_mac, wrong.src_mac = MACS[rng.randrange(2)], 0x02_0000_0000_66
            pair.inject(rng.randrange(2), rng.choice([build(wrong), rng.randbytes(100)]))
    done = pair.poll(0)
    assert statuses(done) == statuses(pair.poll(1)) and all_good(done), SEED
    assert bytes(pair.mr[1].data[:60_000]) == data, SEED
