"""What the hard block packs and unpacks as a whole, against cocotbext-pcie's lists of dwords."""

import random
import struct

import pytest
from cocotbext.pcie.core.tlp import CplStatus, TlpAttr, TlpTc, TlpType
from cocotbext.pcie.core.utils import PcieId
from cocotbext.pcie.xilinx.us.tlp import ErrorCode, Tlp_us

from weft.tb.world import hard_block
from weft.tb.world.bus import BEAT_BYTES
from weft.tb.world.hard_block import _Packet, _Tlp

PACKETS = 200
FIELDS = ("fmt_type", "tc", "ep", "attr", "at", "length", "completer_id", "requester_id", "tag", "first_be", "last_be",
          "address", "data", "seq_num", "discontinue", "requester_id_enable")


def identity(rng):
    return PcieId(rng.randrange(256), rng.randrange(32), rng.randrange(8))


def common(tlp, rng):
    tlp.requester_id, tlp.completer_id, tlp.tag = identity(rng), identity(rng), rng.randrange(256)
    tlp.tc, tlp.attr, tlp.ep = TlpTc(rng.randrange(8)), TlpAttr(rng.randrange(8)), rng.random() < 0.1
    tlp.discontinue = rng.random() < 0.1


def request(rng, cls=Tlp_us):
    """A memory request of any kind, alignment and size."""
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
    """A completion with or without data, of any alignment."""
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
    """The same bytes, enables and marks in both."""
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
