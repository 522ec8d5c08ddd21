"""Peer that violates the protocol of operations: requests are rejected, memory is protected, and nothing grows."""

import random

import pytest

from weft.driver.operation.mailbox import ATOMIC_ETH, REQUEST_BYTES, pack_targets
from weft.driver.protocol.message_end import Kind, MessageEnd, place
from weft.driver.terms.enums import AccessFlag, QPState, WCStatus, WROpcode
from weft.hdl.contract import wire
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.pair.operation_pair import OperationPair

SEED = drawn_seed(__name__)
LOCAL = AccessFlag.LOCAL_WRITE
SLOTS = 16


class HostilePeer(OperationPair):
    """Pair of hosts in which the test sends the frames of A's QP; B is the victim. Both mailboxes are known."""

    def __init__(self, known=True, **options):
        super().__init__(**{"memory_access": LOCAL | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC} | options)
        a, b = self.hosts
        if known:
            self.send(WROpcode.RDMA_READ, (0, 8), at=0)
            self.completions(0, 1)
            self.settle(20_000)
        self.operations = b.qp.engine.operations
        self.psn = b.qp.receiver.base
        self.answers = []
        self.pair.devices[1].transmit = self.answers.append

    def _frame(self, va, key, payload=b"", imm=None, ack_req=0):
        a, b = self.hosts
        extensions = wire.RETH.pack(va=va, rkey=key, dma_length=len(payload))
        opcode = wire.Opcode.WRITE_ONLY
        if imm is not None:
            opcode, extensions = wire.Opcode.WRITE_ONLY_IMM, extensions + wire.IMMDT.pack(imm=imm)
        card = self.pair.devices[1].card
        card.receive(wire.build_frame(
            opcode=opcode, dst_mac=card.mac, src_mac=1, src_ip=a.context.ip, dst_ip=b.context.ip, sport=9,
            dest_qp=b.qp.qp_num, psn=self.psn, ack_req=ack_req, payload=payload, extensions=extensions))
        self.psn += 1

    def write(self, at, data):
        """Write into B's mailbox."""
        self._frame(at, self.operations.mailbox.key, data)

    def announce(self, kind, sequence=None, length=0, argument=0, imm=0, **more):
        """Send the end of a message."""
        if sequence is None:
            sequence = self.operations.responder._sequence
        self._frame(*MessageEnd(kind, sequence, length, argument, **more).words()[:2], imm=imm, ack_req=1)
        self.go()

    def go(self):
        """Let B progress."""
        for _ in range(20):
            self.hosts[1].context.progress()
            self.pair.loop.run(self.pair.loop.now_ns + 1_000)

    @property
    def naks(self):
        """Return the NAK syndromes that B sent, other than PSN sequence errors."""
        frames = [f for f in self.answers if f[wire.BTH_OFFSET] == wire.Opcode.ACKNOWLEDGE]
        found = [wire.AETH.unpack(f[wire.RETH_OFFSET:]).syndrome for f in frames]
        return [syndrome for syndrome in found if syndrome > wire.Syndrome.NAK_PSN_SEQUENCE]


INVALID, ACCESS = wire.Syndrome.NAK_INVALID_REQUEST, wire.Syndrome.NAK_REMOTE_ACCESS
NONSENSE = {
    "wrong sequence": (Kind.SEND, {"sequence": 5}),
    "an immediate out of turn": (Kind.WRITE_IMM, {"sequence": 5}),
    "long data in a slot": (Kind.SEND, {"length": 257}),
    "no such slot": (Kind.SEND, {"length": 10, "argument": SLOTS}),
    "grant for what is short": (Kind.SEND_REQUEST, {"length": 256}),
    "grant in no slot": (Kind.SEND_REQUEST, {"length": 257, "argument": SLOTS}),
    "read of no slot": (Kind.READ, {"length": 10, "argument": SLOTS}),
    "read to too many places": (Kind.READ, {"length": 10, "argument": place(0, 17)}),
    "atomic in no slot": (Kind.FETCH_AND_ADD, {"length": 8, "argument": SLOTS}),
    "unrequested data": (Kind.SEND_DATA, {"length": 1_000}),
    "unrequested mailbox": (Kind.MAILBOX, {"length": 16, "argument": 5}),
    "another mailbox": (Kind.MAILBOX_ASK, {"length": 16, "argument": 5}),
    "mailbox without slots": (Kind.MAILBOX_ASK, {"length": 0, "argument": 5}),
    "unknown kind": (7, {}),
    "unknown kind too": (15, {}),
}
ANSWERS = {
    "grant": (Kind.GRANT, {"length": 1_000, "argument": place(0, 1)}),
    "data of a read": (Kind.READ_DATA, {"length": 1_000}),
    "value of an atomic": (Kind.ATOMIC_RESULT, {"length": 8}),
}


@pytest.mark.parametrize("subject", NONSENSE)
def test_malformed_request_is_an_invalid_request(subject):
    hostile = HostilePeer()
    kind, fields = NONSENSE[subject]
    hostile.hosts[1].recv(0, 4096)
    before = hostile.hosts[1].mr.read(1 << 16, 0)
    hostile.announce(kind, **fields)
    assert hostile.naks == [INVALID] and hostile.hosts[1].qp.qp_state is QPState.ERR
    assert hostile.hosts[1].mr.read(1 << 16, 0) == before
    assert [wc.status for wc in hostile.hosts[1].cq.take(9)[1]] == [WCStatus.WR_FLUSH_ERR]


def test_grant_request_without_a_mailbox_is_invalid():
    hostile = HostilePeer(known=False)
    b = hostile.hosts[1]
    b.recv(0, 4096)
    b.qp.engine.operations.mailbox.open()
    hostile.go()
    hostile.announce(Kind.SEND_REQUEST, length=1_000)
    assert hostile.naks == [INVALID] and b.qp.qp_state is QPState.ERR


@pytest.mark.parametrize("subject", ANSWERS)
def test_response_without_a_request_is_a_bad_response(subject):
    hostile = HostilePeer()
    kind, fields = ANSWERS[subject]
    hostile.send(WROpcode.RDMA_WRITE, (0, 8), end=1, wr_id=4)
    hostile.announce(kind, **fields)
    assert [wc.status for wc in hostile.hosts[1].cq.take(9)[1]] == [WCStatus.BAD_RESP_ERR]
    assert hostile.hosts[1].qp.qp_state is QPState.ERR


@pytest.mark.parametrize(("opcode", "length", "kind", "fields"), [
    (WROpcode.SEND, 1_000, Kind.READ_DATA, {"length": 1_000}),
    (WROpcode.SEND, 1_000, Kind.ATOMIC_RESULT, {}),
    (WROpcode.SEND, 1_000, Kind.GRANT, {"length": 1_000, "argument": place(0, 0)}),
    (WROpcode.SEND, 1_000, Kind.GRANT, {"length": 1_000, "argument": place(0, 17)}),
    (WROpcode.SEND, 1_000, Kind.GRANT, {"length": 1_000, "argument": place(0, 1)}),   # other length, see below
    (WROpcode.RDMA_READ, 1_000, Kind.GRANT, {"length": 1_000, "argument": place(0, 1)}),
    (WROpcode.RDMA_READ, 1_000, Kind.READ_DATA, {"length": 999}),
    (WROpcode.RDMA_READ, 1_000, Kind.ATOMIC_RESULT, {}),
    (WROpcode.ATOMIC_FETCH_AND_ADD, 8, Kind.READ_DATA, {"length": 8}),
    (WROpcode.ATOMIC_FETCH_AND_ADD, 8, Kind.GRANT, {"length": 8, "argument": place(0, 1)}),
])
def test_wrong_response_is_a_bad_response(opcode, length, kind, fields):
    hostile = HostilePeer()
    hostile.send(opcode, (0, length), end=1)
    hostile.go()
    mailbox = hostile.operations.mailbox
    hostile.write(mailbox.own_slots * REQUEST_BYTES, pack_targets([(0x1000, 7, 999)]))
    hostile.announce(kind, sequence=0, **fields)
    assert [wc.status for wc in hostile.hosts[1].cq.take(9)[1]] == [WCStatus.BAD_RESP_ERR]
    hostile.settle(20_000)
    assert not hostile.hosts[1].context.engine.lender.windows.open
    assert hostile.hosts[1].mr.read(length, 0) == bytes(length)


@pytest.mark.parametrize("targets", [[(0, 7, 99)], [(0, 7, 101)], [((1 << 64) - 5, 7, 100)], [(0, 7, 50)] * 3])
def test_read_with_a_different_length_is_invalid(targets):
    hostile = HostilePeer()
    mr = hostile.hosts[1].mr
    hostile.write(0, pack_targets([(mr.buf, mr.rkey, 100), *targets]))
    hostile.announce(Kind.READ, length=100, argument=place(0, len(targets)))
    assert hostile.naks == [INVALID]


@pytest.mark.parametrize("kind", [Kind.SEND, Kind.SEND_REQUEST, Kind.READ, Kind.FETCH_AND_ADD])
def test_messages_before_the_mailbox_exists_are_invalid(kind):
    hostile = HostilePeer(known=False)
    hostile.hosts[1].recv()
    hostile.announce(kind, length=8 if kind is not Kind.SEND_REQUEST else 1_000)
    assert hostile.naks == [INVALID]


def test_sends_with_data_are_limited_by_mailbox_slots():
    hostile = HostilePeer()
    for n in range(SLOTS):
        hostile.announce(Kind.SEND_REQUEST, length=1_000, argument=n)
    assert not hostile.naks and len(hostile.operations.responder) == SLOTS
    hostile.announce(Kind.SEND_REQUEST, length=1_000)
    assert hostile.naks == [] and hostile.operations.responder.entries[-1].syndrome is INVALID
    for _ in range(200):
        hostile.announce(Kind.SEND_REQUEST, length=1_000)
    assert len(hostile.operations.responder) <= SLOTS + 1


def test_blocked_reads_are_limited():
    """They wait for a missing receive."""
    hostile = HostilePeer(max_dest_rd_atomic=4)
    hostile.announce(Kind.SEND)
    for _ in range(50):
        hostile.announce(Kind.FETCH_AND_ADD, length=8)
    assert len(hostile.operations.responder) <= 6


def test_unacknowledged_responses_are_limited():
    hostile = HostilePeer(max_dest_rd_atomic=4)
    mr = hostile.hosts[1].mr
    hostile.write(0, ATOMIC_ETH.pack(va=mr.buf, rkey=mr.rkey, swap_or_add=1))
    for _ in range(8):
        hostile.announce(Kind.FETCH_AND_ADD, length=8)
    assert int.from_bytes(mr.read(8, 0), "little") == 4, "answers wait to be taken"
    for _ in range(50):
        hostile.announce(Kind.FETCH_AND_ADD, length=8)
    assert len(hostile.operations.responder) <= 6 and hostile.hosts[1].qp.sender.queue.sent_psn < 1 << 25


def test_requests_waiting_for_a_receive_are_limited():
    hostile = HostilePeer()
    hostile.hosts[1].qp.receiver._messages_max = 100
    for _ in range(150):
        hostile.announce(Kind.SEND)
    assert len(hostile.operations.responder) <= 100
    assert hostile.hosts[1].qp.receiver.counts["messages_refused"]


def test_completed_count_beyond_the_requests_is_invalid():
    hostile = HostilePeer()
    a, b = hostile.hosts
    hostile.send(WROpcode.SEND, end=1)
    hostile.go()
    card = hostile.pair.devices[1].card
    for msn in (2, 1 << 20, (1 << 23) - 1, 1 << 23):
        card.receive(wire.build_frame(
            opcode=wire.Opcode.ACKNOWLEDGE, dst_mac=card.mac, src_mac=1, src_ip=a.context.ip, dst_ip=b.context.ip,
            sport=9, dest_qp=b.qp.qp_num, psn=b.qp.sender.queue.sent_psn - 1,
            extensions=wire.AETH.pack(syndrome=wire.Syndrome.ACK, msn=msn)))
        hostile.go()
    assert not len(b.cq) and b.qp.sender.msn == 0


@pytest.mark.parametrize("turn", range(60))
def test_random_message_ends_and_mailboxes(turn):
    """With any message, nothing raises, and only receives and the memory that the peer may write change."""
    seed = SEED + turn
    print(f"WEFT_SEED={SEED} python -m pytest tb/test/driver/operation/test_hostile_operations.py "
          f"-k 'random and {turn}'")
    rng = random.Random(seed)
    hostile = HostilePeer(access=AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ)
    b = hostile.hosts[1]
    b.mr.write(rng.randbytes(1 << 16))
    for n in range(4):
        b.recv(1_000 * n, 1_000)
    before = b.mr.read(60_000, 4_000)
    for n in range(3):
        hostile.send(rng.choice([WROpcode.SEND, WROpcode.RDMA_WRITE, WROpcode.ATOMIC_FETCH_AND_ADD]), (64_008, 8),
                     end=1,
                     wr_id=n)
    for _ in range(12):
        target = rng.choice([(b.mr.buf + 5_000, b.mr.rkey, 100), (rng.getrandbits(64), rng.getrandbits(32), 100)])
        places = [(rng.getrandbits(64), rng.getrandbits(32), rng.choice([100, 50, rng.getrandbits(32)]))
                  for _ in range(rng.randint(1, 3))]
        data = rng.choice([pack_targets([target, *places]), rng.randbytes(64)])
        hostile.write(rng.randrange(SLOTS) * REQUEST_BYTES, data)
        hostile.announce(rng.randrange(16), rng.choice([None, None, 0, rng.getrandbits(24)]),
                         rng.choice([0, 8, 100, 1_000, rng.getrandbits(32)]),
                         rng.choice([place(rng.randrange(SLOTS), rng.randrange(4)), rng.getrandbits(32)]),
                         rng.getrandbits(32))
    assert b.mr.read(60_000, 4_000) == before
    assert len(b.cq) <= 7
    hostile.settle(50_000)
    b.close()
