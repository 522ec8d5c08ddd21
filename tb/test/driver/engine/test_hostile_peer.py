"""Lying and unknown peers: nothing grows, raises, or completes without cause, and other QPs continue.

Every random choice derives from a seed; ``WEFT_SEED`` repeats one.
"""

import collections
import random

import pytest

from weft.driver.knitting.holes import encode
from weft.driver.knitting.node import pack_block
from weft.driver.terms.enums import QPState, WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import wire
from weft.model.functional.host import FunctionalDevice
from weft.model.functional.memory import HostMemory
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.judge.growth import sizes
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair

SEED = drawn_seed(__name__)
Opcode = wire.Opcode
PSNS, FRAMES, ROUND = 1 << wire.PSN_BITS, 1_500, 25
LENGTH, HALF = 16_384, 8_192
UNKNOWN_PEER = 0x0B0B0B0B


def kept(context):
    """Return the sizes of the objects that a driver holds."""
    return sizes(context, (FunctionalDevice, HostMemory))


class Scene:
    """Victim QPs whose data the link drops at first, and honest QPs on the same cards."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.pair = make_pair(seed=seed)
        self.ends = make_endpoints(self.pair, LENGTH, timeout=16)
        self.honest = [end.qps[0] for end in self.ends]
        self.cqs = [CQ(context, 64) for context in self.pair.contexts]
        self.victims = [QP(end.pd, rc_init_attr(cq)) for end, cq in zip(self.ends, self.cqs, strict=True)]
        for qp, peer in zip(self.victims, self.victims[::-1], strict=True):
            qp.connect(peer.connection, timeout=16, path_mtu=1)
        self.pair.links[0].drop = self._is_of_victim
        self.dropping = True

    def _is_of_victim(self, frame):
        bth = wire.BTH.unpack(frame[wire.BTH_OFFSET:])
        return self.dropping and bth.dest_qp == self.victims[1].qp_num and bth.opcode in wire.DATA_OPCODES

    def post(self, qp, offset, wr_id):
        me, you = self.ends
        wr = SendWR(wr_id, sg=[SGE(me.mr.buf + offset, HALF, me.mr.lkey)], opcode=WROpcode.RDMA_WRITE)
        wr.set_wr_rdma(you.mr.rkey, you.mr.buf + offset)
        qp.post_send(wr)

    def step(self):
        """Let both hosts progress, and time pass."""
        for context in self.pair.contexts:
            context.progress()
        self.pair.loop.run(self.pair.loop.now_ns + 2_000)

    def honest_transfer(self):
        """Write on the honest QP, and check the data and the completion."""
        data = self.rng.randbytes(HALF)
        self.ends[0].mr.write(data)
        self.post(self.honest[0], 0, 1)
        for _ in range(2_000):
            self.step()
            if len(self.ends[0].cq):
                break
        assert [wc.status for wc in self.ends[0].cq.take(8)[1]] == [WCStatus.SUCCESS]
        assert self.ends[1].mr.read(HALF, 0) == data, "the honest QP's bytes differ"

    def frame(self, opcode, target, *, psn, extension, payload=b"", src_ip=None):
        to, peer = self.pair.contexts[target], self.pair.contexts[1 - target]
        return wire.build_frame(
            opcode=opcode, dst_mac=to.mac, src_mac=peer.mac, src_ip=peer.ip if src_ip is None else src_ip,
            dst_ip=to.ip, sport=0xC000, dest_qp=self.victims[target].qp_num, psn=psn % PSNS, extensions=extension,
            payload=payload)

    # Each of these returns (target host, frame).

    def acknowledgement(self):
        queue, rng = self.victims[0].sender.queue, self.rng
        if rng.random() < 0.5:     # never sent, or long ago
            psn = queue.una - 1 + rng.choice([queue.sent_psn - queue.una + 1, 1 << 22, -1, -5, -(1 << 22)])
            syndrome = rng.randrange(256)
        else:
            psn = rng.randrange(queue.una, queue.sent_psn)
            syndrome = rng.choice([0x40, 0x5F, 0x60, 0x64, 0x7F, 0x80, 0xE0, 0xFF])
        return 0, self.frame(Opcode.ACKNOWLEDGE, 0, psn=psn,
                             extension=wire.AETH.pack(syndrome=syndrome, msn=rng.randrange(PSNS)))

    def loss_report(self):
        rng, sender = self.rng, self.victims[0].sender
        queue = sender.queue
        base = rng.choice([queue.una, queue.sent_psn, queue.una - 9, queue.sent_psn - 1, rng.randrange(1 << 24)])
        runs, at = [], base
        for _ in range(rng.randint(1, 9)):
            runs.append((at, rng.randint(1, 20)))
            at += runs[-1][1] + rng.randint(1, 5)
        _, fields = encode(runs)[0]
        rsn = sender.expected_rsn + rng.choice([0, 1, 7, 100, 5_000, 1 << 22, -1, -70])
        fields |= {"qpn": self.victims[0].index, "generation": self.victims[0].generation, "rsn": rsn % (1 << 32)}
        if rng.random() < 0.2:
            fields["count"] = rng.randrange(1 << 9)
        data = pack_block(next_phase=0, next_adjacent=0, next_line=0, **fields)
        if rng.random() < 0.1:
            data = rng.randbytes(64)
        return 0, self.frame(Opcode.LOSS_REPORT, 0, psn=base, payload=data, extension=wire.RSNH.pack(
            rsn=rsn % (1 << wire.RSN_BITS)))

    def limit(self):
        rng, queue = self.rng, self.victims[0].sender.queue
        serial = rng.choice([1, 2, rng.randrange(300), 1 << 20, rng.randrange(1 << wire.LIMIT_SERIAL_BITS)])
        psn = rng.choice([queue.una, queue.sent_psn + 1, rng.randrange(PSNS)])
        return 0, self.frame(Opcode.RECEIVE_LIMIT, 0, psn=psn,
                             extension=wire.LIMH.pack(limited=rng.randrange(2), serial=serial))

    def probe(self):
        """Return a probe at a PSN up to the newest one sent; some are of unknown peers.

        The window handles PSNs further ahead.
        """
        rng, queue = self.rng, self.victims[0].sender.queue
        return 1, self.frame(Opcode.PROBE, 1, psn=rng.randrange(queue.una, queue.sent_psn + 1),
                             src_ip=rng.choice([None, UNKNOWN_PEER]), extension=wire.RSNH.pack(
                                 rsn=rng.randrange(4)))

    def report_request(self):
        rng = self.rng
        return 1, self.frame(Opcode.REPORT_REQUEST, 1, psn=rng.randrange(PSNS), src_ip=rng.choice([None, UNKNOWN_PEER]),
                             extension=wire.RSNH.pack(rsn=rng.choice([0, 1, rng.randrange(1 << wire.RSN_BITS)])))

    def notification(self):
        return 0, self.frame(Opcode.CNP, 0, psn=self.rng.randrange(PSNS), src_ip=self.rng.choice([None, UNKNOWN_PEER]),
                             extension=wire.CNPH.pack())

    def unknown_peer(self):
        """Return a frame of another kind with a different source address, which the driver drops."""
        target, frame = getattr(self, self.rng.choice(["acknowledgement", "loss_report", "limit"]))()
        at = wire.ETH.size_bytes
        header = vars(wire.IPV4.unpack(frame[at:])) | {"src": UNKNOWN_PEER, "checksum": 0}
        header["checksum"] = wire.ipv4_checksum(wire.IPV4.pack(**header))
        frame = frame[:at] + wire.IPV4.pack(**header) + frame[at + wire.IPV4.size_bytes:-wire.ICRC_BYTES]
        return target, frame + wire.icrc(frame)


KINDS = ["acknowledgement", "loss_report", "limit", "probe", "report_request", "notification", "unknown_peer"]


@pytest.mark.parametrize("kind", KINDS)
def test_forged_frames_use_no_memory_and_complete_nothing(kind):
    print(f"WEFT_SEED={SEED} pytest tb/test/driver/engine/test_hostile_peer.py -k {kind}")
    scene = Scene(f"{SEED}/{kind}")
    scene.ends[0].mr.write(scene.rng.randbytes(HALF), offset=HALF)
    scene.post(scene.victims[0], HALF, 2)
    for _ in range(100):     # the receiver finds its holes, and no retransmission arrives
        scene.step()
    scene.honest_transfer()
    before = [kept(context) for context in scene.pair.contexts]
    most = collections.Counter()
    for number in range(FRAMES):
        target, frame = getattr(scene, kind)()
        scene.pair.devices[target].card.receive(frame)
        if number % ROUND == ROUND - 1:
            scene.step()
            for name, count in (kept(scene.pair.contexts[0]) + kept(scene.pair.contexts[1])).items():
                most[name] = max(most[name], count)
        assert not scene.cqs[0].overrun
        if scene.victims[0].qp_state is QPState.ERR:
            break
    scene.honest_transfer()
    early = scene.cqs[0].take(8)[1]
    assert all(wc.status is not WCStatus.SUCCESS for wc in early), "a write completed that never arrived"
    after = [kept(context) for context in scene.pair.contexts]
    was = before[0] + before[1]
    growth = {name: (was[name], count) for name, count in most.items() if count > 2 * was[name] + 1_200}
    assert not growth, f"while it lasts: {growth}"
    scene.dropping = False
    for _ in range(4_000):
        scene.step()
        if early or len(scene.cqs[0]):
            break
    wcs = early + scene.cqs[0].take(8)[1]
    assert [wc.wr_id for wc in wcs] in ([2], []), wcs
    actual = scene.ends[1].mr.read(HALF, HALF) == scene.ends[0].mr.read(HALF, HALF)
    if kind in ("acknowledgement", "probe", "report_request", "notification", "unknown_peer"):
        assert [wc.status for wc in wcs] == [WCStatus.SUCCESS] and actual
    assert actual or all(wc.status is not WCStatus.SUCCESS for wc in wcs)
    for one, two in zip(before, after, strict=True):
        growth = {name: (one[name], two[name]) for name in two if two[name] > one[name] + 64}
        assert not growth, f"afterwards: {growth}"
    for cq, qp in zip(scene.cqs, scene.victims, strict=True):
        qp.close()
        cq.close()
    close_and_check(scene.pair, scene.ends)
