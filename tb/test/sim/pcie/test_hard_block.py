"""Tests of packets that the hard block packs and unpacks as integers, against cocotbext-pcie's lists of dwords."""

import random
import struct
from collections import Counter, deque

import pytest
from cocotb.triggers import Event
from cocotbext.pcie.core.tlp import CplStatus, TlpAttr, TlpTc, TlpType
from cocotbext.pcie.core.utils import PcieId
from cocotbext.pcie.xilinx.us.tlp import ErrorCode, Tlp_us

from weft.tb.sim.pcie import hard_block
from weft.tb.sim.pcie.hard_block import _Packet, _StraddledTlp, _Tlp
from weft.tb.sim.stream.bus import BEAT_BYTES, DATA_BITS, Bus

PACKETS = 200
FIELDS = ("fmt_type", "tc", "ep", "attr", "at", "length", "completer_id", "requester_id", "tag", "first_be", "last_be",
          "address", "data", "seq_num", "discontinue", "requester_id_enable")


class Taken(list):
    """Packets that a sink accepted."""

    put_nowait = list.append


def identity(rng):
    return PcieId(rng.randrange(256), rng.randrange(32), rng.randrange(8))


def common(tlp, rng):
    tlp.requester_id, tlp.completer_id, tlp.tag = identity(rng), identity(rng), rng.randrange(256)
    tlp.tc, tlp.attr, tlp.ep = TlpTc(rng.randrange(8)), TlpAttr(rng.randrange(8)), rng.random() < 0.1
    tlp.discontinue = rng.random() < 0.1


def request(rng, cls=Tlp_us):
    """Return a memory request of any kind, alignment and size."""
    tlp = cls()
    common(tlp, rng)
    tlp.requester_id_enable, tlp.seq_num = rng.random() < 0.5, rng.randrange(64)
    write, high = rng.random() < 0.5, rng.random() < 0.5
    tlp.fmt_type = {(False, False): TlpType.MEM_READ, (False, True): TlpType.MEM_READ_64,
                    (True, False): TlpType.MEM_WRITE, (True, True): TlpType.MEM_WRITE_64}[write, high]
    address = rng.randrange(1 << 32) | (rng.randrange(1, 1 << 32) << 32 if high else 0)
    length = rng.choice([1, 2, 3, 4, 5, 48, 49, rng.randrange(1, 600)])
    if write:
        tlp.set_addr_be_data(address, rng.randbytes(length))
    else:
        tlp.set_addr_be(address, length)
    return tlp


def completion(rng, cls):
    """Return a completion with or without data, of any alignment."""
    tlp = cls()
    common(tlp, rng)
    tlp.fmt_type = rng.choice([TlpType.CPL, TlpType.CPL_DATA])
    tlp.lower_address, tlp.request_completed = rng.randrange(4096), rng.random() < 0.5
    tlp.error_code, tlp.status = rng.choice(list(ErrorCode)), rng.choice(list(CplStatus))
    if tlp.fmt_type is TlpType.CPL_DATA:
        dwords = rng.choice([1, 2, 13, 14, rng.randrange(1, 257)])
        tlp.set_data(rng.randbytes(4 * dwords))
        tlp.byte_count = rng.choice([max(1, 4 * dwords - (tlp.lower_address & 3) - rng.randrange(4)),
                                     4 * dwords + rng.randrange(1000)])
    return tlp


def check_packed(frame, packed, enables_at, discontinue):
    """Check that bytes, enables and marks are the same in both."""
    content, users = packed
    assert content == struct.pack(f"<{len(frame.data)}I", *frame.data)
    assert len(users) == -(-len(content) // BEAT_BYTES)
    enables = [user >> enables_at + lane & 0xF for user in users for lane in range(0, BEAT_BYTES, 4)]
    assert enables[:len(frame.byte_en)] == frame.byte_en and not any(enables[len(frame.byte_en):])
    assert all(bool(user & discontinue) == frame.discontinue for user in users)


def test_requests_of_the_card():
    for seed in range(PACKETS):
        frame = request(random.Random(seed)).pack_us_rq()
        user = frame.first_be | frame.last_be << 8 | frame.seq_num << hard_block.RQ_SEQUENCE
        packet = _Packet(struct.pack(f"<{len(frame.data)}I", *frame.data), user, frame.discontinue)
        ours, theirs = _Tlp.unpack_us_rq(packet), Tlp_us.unpack_us_rq(frame)
        assert {name: getattr(ours, name) for name in FIELDS} == {name: getattr(theirs, name) for name in FIELDS}, seed


def test_completions_for_the_card():
    for seed in range(PACKETS):
        frame = completion(random.Random(seed), Tlp_us).pack_us_rc()
        content, users = completion(random.Random(seed), _Tlp).pack_us_rc()
        check_packed(frame, (content, users), 0, hard_block.RC_DISCONTINUE)
        assert [bool(user & hard_block.RC_SOP) for user in users] == [True] + [False] * (len(users) - 1)
        assert [bool(user & hard_block.RC_EOP) for user in users] == [False] * (len(users) - 1) + [True]
        assert users[-1] >> hard_block.RC_EOP_LANE & 0xF == (len(frame.data) - 1) % 16


@pytest.mark.parametrize("bar", [0, 5])
def test_requests_to_the_card(bar):
    for seed in range(PACKETS):
        ours, theirs = (request(random.Random(seed), cls) for cls in (_Tlp, Tlp_us))
        ours.bar_id = theirs.bar_id = bar
        frame, (content, users) = theirs.pack_us_cq(), ours.pack_us_cq()
        check_packed(frame, (content, users), hard_block.CQ_ENABLES, hard_block.CQ_DISCONTINUE)
        assert (users[0] & 0xF, users[0] >> 8 & 0xF) == (frame.first_be, frame.last_be)
        assert users[0] & hard_block.CQ_SOP and users[-1] & hard_block.CQ_EOP
        assert users[-1] >> hard_block.CQ_EOP_LANE & 0xF == (len(frame.data) - 1) % 16


class Wires(Bus):
    """The widths of a stream of module ``two_cards``, without a simulator."""

    def __init__(self, user_bits):
        self._name = "wires"
        self.user_at = DATA_BITS + BEAT_BYTES // 4
        self.last_at = self.user_at + user_bits
        self.valid_at = self.last_at + 1

    def bits(self, word):
        return f"{word:0{self.valid_at + 1}b}"


def without_simulator(kind, user_bits):
    """Return an end of a stream that no clock drives."""
    end = object.__new__(kind)
    end.bus, end._packets, end._taken = Wires(user_bits), deque(), Event()
    end._packet, end._at, end._content, end._discontinued = None, 0, bytearray(), False
    return end


def test_completions_with_straddle():
    """Completions follow each other from quarter to quarter of the beats, in order and whole.

    A discontinued one shares no beat.
    """
    source, seen = without_simulator(hard_block._StraddledSource, 161), Counter()
    packets = [completion(random.Random(seed), _StraddledTlp).pack_us_rc() for seed in range(PACKETS)]
    source._packets.extend(packets)
    got, content, enables = [], None, 0
    while not source.idle():
        data, keep, last, user = source.bus.parts(source.bus.bits(source.next()))
        assert keep == 0xFFFF and not last
        begins = [user >> 68 + 2 * k & 3 for k in range(4) if user >> 64 + k & 1]
        ends = [user >> 80 + 4 * k & 15 for k in range(4) if user >> 76 + k & 1]
        seen[len(begins), len(ends)] += 1
        given_up = bool(user >> 96 & 1)
        assert not given_up or len(ends) == 1 and begins in ([0], [])
        for slot in range(4):
            if content is None:
                if not begins:
                    continue
                assert begins.pop(0) == slot
                content, enables = bytearray(), 0
            upto = ends[0] + 1 if ends and ends[0] // 4 == slot else 4 * slot + 4
            enables |= (user >> 16 * slot & 0xFFFF) << len(content)
            content += data[16 * slot:4 * upto]
            if ends and ends[0] // 4 == slot:
                ends.pop(0)
                got.append((bytes(content), enables, given_up))
                content = None
        assert not begins and not ends
    assert got == [(bytes(content), enables, given_up) for content, enables, given_up in packets]
    assert {(2, 2), (1, 2), (2, 1), (0, 0)} <= set(seen)


def test_requests_with_straddle():
    """A request begins in the second half of a beat if one before it ends in the first."""
    rng, sink, wanted = random.Random(1), without_simulator(hard_block._StraddledRqSink, 137), []
    sink._packets = Taken()
    beat, user, begun, ended, seen = bytearray(), 0, 0, 0, Counter()

    def send():
        nonlocal beat, user, begun, ended
        seen[begun, ended] += 1
        sink.take(sink.bus.bits(sink.bus.word(beat.ljust(64, b"?"), 0xFFFF, 0, user)))
        beat, user, begun, ended = bytearray(), 0, 0, 0

    for _ in range(PACKETS):
        content, marks = rng.randbytes(4 * rng.choice([4, 4, 5, 8, 9, rng.randint(4, 60)])), [
            rng.getrandbits(bits) for bits in (4, 4, 6)]
        wanted.append((content, *marks))
        if len(beat) > 32 or beat and (rng.random() < 0.3 or not ended):
            send()
        beat = beat.ljust(32 if beat else 0, b"?")
        user |= (1 << 20 + begun | (2 if beat else 0) << 22 + 2 * begun | marks[0] << 4 * begun
                 | marks[1] << 8 + 4 * begun | marks[2] << 61 + 6 * begun)
        begun += 1
        while len(beat) + len(content) > 64:
            used = 64 - len(beat)
            beat += content[:used]
            content = content[used:]
            send()
        beat += content
        user |= 1 << 26 + ended | (len(beat) // 4 - 1) << 28 + 4 * ended
        ended += 1
    send()
    assert [(packet.content, packet.user & 0xF, packet.user >> 8 & 0xF, packet.user >> 61 & 0x3F)
            for packet in sink._packets] == wanted
    assert {(2, 2), (1, 2), (2, 1), (1, 1), (0, 0)} <= set(seen)
