"""Random and mutated frames at the RoCEv2 endpoint: no exception, no growth, no access to other memory."""

import os
import random

import pytest

from weft.driver.soft.rc.context import SoftContext
from weft.driver.soft.rc.mr import SoftMR
from weft.driver.soft.rc.opcodes import ATOMICETH, EXTENSIONS, RcOpcode
from weft.driver.soft.rc.packet import Addresses, build
from weft.driver.soft.rc.request import OPCODES
from weft.driver.terms.enums import MTU, AccessFlag, QPState, WROpcode
from weft.driver.verbs.pd import PD
from weft.hdl.contract import wire
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.driver.soft.hosts import MACS
from weft.tb.test.driver.soft.rc_pair import IPS, RcPair, all_good
from weft.tb.test.driver.soft.rc_traffic import traffic
from weft.tb.test.driver.soft.test_rc_wire import random_packet

SEED = drawn_seed(__name__)
FRAMES = int(os.environ.get("WEFT_FRAMES") or 10_000)
AGAIN = f"WEFT_SEED={SEED} WEFT_FRAMES={FRAMES} python -m pytest tb/test/driver/soft/test_rc_hostile.py"


def resealed(frame):
    """Return the frame with valid lengths and ICRC."""
    body = bytearray(frame[:-4])
    size = len(frame) - wire.ETH.size_bytes
    body[16:18] = size.to_bytes(2, "big")
    body[38:40] = (size - wire.IPV4.size_bytes).to_bytes(2, "big")
    body[24:26] = bytes(2)
    body[24:26] = wire.ipv4_checksum(bytes(body[14:34])).to_bytes(2, "big")
    return bytes(body) + wire.icrc(body)


def mutated(rng, frame, qp):
    """Return a frame for ``qp`` with an error: bits, length, or random fields with a valid ICRC."""
    kind = rng.choice([0, 1, 2, 3, 4, 4, 4, 4])
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    if kind == 1:
        return frame[:rng.randrange(len(frame) + 1)] + rng.randbytes(rng.choice([0, 0, 1, 40]))
    changed = bytearray(frame)
    if kind in (2, 3):
        low = 0 if kind == 2 else wire.BTH_OFFSET
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(low, len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed) if kind == 2 else resealed(bytes(changed))
    packet = random_packet(rng, rng.choice(list(RcOpcode)))
    packet.dest_qp = qp.qp_num
    if rng.random() < 0.8:
        near = qp.responder.epsn if rng.random() < 0.6 else qp.requester.una
        packet.psn = (near + rng.choice([0, 0, 0, -3, -2, -1, 1, 2, 3])) % (1 << 24)
    if EXTENSIONS[packet.opcode] and EXTENSIONS[packet.opcode][0] in (wire.RETH, ATOMICETH):
        mr = rng.choice(list(qp.pd.mrs))
        packet.va = mr.buf + rng.choice([0, 0, 8, mr.length - 8, mr.length, -8])
        packet.rkey = mr.rkey if rng.random() < 0.9 else packet.rkey
        packet.dma_length = rng.choice([len(packet.payload), len(packet.payload), 300, 5000])
    me = 1 - MACS.index(qp.context.mac)
    return build(packet, Addresses(MACS[1 - me], IPS[1 - me], MACS[me], IPS[me], 1))


def test_random_and_mutated_frames_raise_nothing():
    rng, sent, seen = random.Random(SEED), 0, set()
    own = traffic(SEED).frames
    while sent < FRAMES:
        pair = RcPair(seed=f"{SEED}/{sent}", path_mtu=MTU.MTU_256, psns=(sent % (1 << 24), 2 * sent % (1 << 24)))
        apart = SoftMR(PD(pair.ends[1]), 4096, AccessFlag(15))     # in another protection domain
        for _ in range(3):
            pair.post_recv(0)
            pair.post_recv(1)
        pair.links[0].drop = lambda frame: rng.random() < 0.5
        for n in range(4):
            pair.post(n % 2, rng.choice(OPCODES), length=8, wr_id=n)
        pair.run(limit_ns=rng.randrange(200_000))
        for _ in range(100):
            to = rng.randrange(2)
            frame = mutated(rng, rng.choice(own)[1], pair.qp[to])
            try:
                pair.hosts[to].arrive(frame)
            except Exception as error:
                raise AssertionError(f"{frame.hex()}: {AGAIN}") from error
            for i in range(2):
                pair.poll(i)
                if pair.qp[i].qp_state is QPState.RTS and not pair.qp[i].receives:
                    pair.post_recv(i)
        sent += 100
        for i, qp in enumerate(pair.qp):
            assert len(qp.responder.replies) <= qp.attr.max_dest_rd_atomic + 1, AGAIN
            assert len(qp.requester.requests) <= 4 and len(pair.ends[i].qps) == 1, AGAIN
            seen |= set(pair.ends[i].counts)
        assert not any(apart.view), AGAIN
    wanted = {"foreign", "truncated", "length", "icrc", "opcode", "other_host", "unknown_qp", "not_connected",
              "duplicates", "early_packets", "ghost_responses", "refused_nak_invalid_request",
              "refused_nak_remote_access", "unknown_duplicates"}
    assert wanted <= seen, (wanted - seen, AGAIN)


def test_invalid_frames_change_nothing():
    """Frames of other hosts and random bytes change nothing."""
    rng = random.Random(SEED)
    pair = RcPair()
    data = rng.randbytes(60_000)
    pair.mr[0].write(data)
    for n in range(10):
        pair.post(0, WROpcode.RDMA_WRITE, length=6000, at=6000 * n, to=6000 * n, wr_id=n)
    while len(pair.cq[0]) < 10:
        pair.run(lambda: len(pair.cq[0]) == 10, limit_ns=2000)
        for _ in range(10):
            to = rng.randrange(2)
            packet = random_packet(rng, rng.choice(list(RcOpcode)))
            packet.dest_qp, packet.psn = pair.qp[to].qp_num, pair.qp[to].responder.epsn % (1 << 24)
            pair.inject(to, packet, own_ip=0x0A00_0063)
            pair.hosts[to].arrive(rng.randbytes(rng.randrange(200)))
    assert all_good(pair.poll(0)) and pair.mr[1].read(60_000) == data, SEED
    assert pair.ends[0].counts["foreign_sender"] and pair.ends[1].counts["foreign_sender"]


def test_number_of_objects_of_a_host_is_limited():
    end = SoftContext(mac=1, ip=1, max_qp=1, max_mr=2)
    pd = PD(end)
    for _ in range(2):
        SoftMR(pd, 8, AccessFlag(0))
    with pytest.raises(MemoryError, match="2 memory regions"):
        SoftMR(pd, 8, AccessFlag(0))
    pd.close()
    keys = {SoftMR(PD(end), 8, AccessFlag(0)).rkey for _ in range(2)}
    assert len(keys) == 2
