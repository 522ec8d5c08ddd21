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


class Liar(OperationPair):
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

    def say(self, kind, sequence=None, length=0, argument=0, imm=0, **more):
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
    "data nobody asked for": (Kind.SEND_DATA, {"length": 1_000}),
    "mailbox nobody asked for": (Kind.MAILBOX, {"length": 16, "argument": 5}),
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


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_is_an_invalid_request(what):
    liar = Liar()
    kind, fields = NONSENSE[what]
    liar.hosts[1].recv(0, 4096)
    before = liar.hosts[1].mr.read(1 << 16, 0)
    liar.say(kind, **fields)
    assert liar.naks == [INVALID] and liar.hosts[1].qp.qp_state is QPState.ERR
    assert liar.hosts[1].mr.read(1 << 16, 0) == before
    assert [wc.status for wc in liar.hosts[1].cq.take(9)[1]] == [WCStatus.WR_FLUSH_ERR]


def test_grant_is_not_asked_for_without_a_mailbox_to_put_it_in():
    liar = Liar(known=False)
    b = liar.hosts[1]
    b.recv(0, 4096)
    b.qp.engine.operations.mailbox.open()
    liar.go()
    liar.say(Kind.SEND_REQUEST, length=1_000)
    assert liar.naks == [INVALID] and b.qp.qp_state is QPState.ERR


@pytest.mark.parametrize("what", ANSWERS)
def test_answer_to_nothing_is_a_bad_response(what):
    liar = Liar()
    kind, fields = ANSWERS[what]
    liar.send(WROpcode.RDMA_WRITE, (0, 8), end=1, wr_id=4)
    liar.say(kind, **fields)
    assert [wc.status for wc in liar.hosts[1].cq.take(9)[1]] == [WCStatus.BAD_RESP_ERR]
    assert liar.hosts[1].qp.qp_state is QPState.ERR


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
def test_wrong_answer_is_a_bad_response(opcode, length, kind, fields):
    liar = Liar()
    liar.send(opcode, (0, length), end=1)
    liar.go()
    mailbox = liar.operations.mailbox
    liar.write(mailbox.own_slots * REQUEST_BYTES, pack_targets([(0x1000, 7, 999)]))
    liar.say(kind, sequence=0, **fields)
    assert [wc.status for wc in liar.hosts[1].cq.take(9)[1]] == [WCStatus.BAD_RESP_ERR]
    liar.settle(20_000)
    assert not liar.hosts[1].context.engine.lender.windows.open
    assert liar.hosts[1].mr.read(length, 0) == bytes(length)


@pytest.mark.parametrize("targets", [[(0, 7, 99)], [(0, 7, 101)], [((1 << 64) - 5, 7, 100)], [(0, 7, 50)] * 3])
def test_read_to_places_of_another_length_is_invalid(targets):
    liar = Liar()
    mr = liar.hosts[1].mr
    liar.write(0, pack_targets([(mr.buf, mr.rkey, 100), *targets]))
    liar.say(Kind.READ, length=100, argument=place(0, len(targets)))
    assert liar.naks == [INVALID]


@pytest.mark.parametrize("kind", [Kind.SEND, Kind.SEND_REQUEST, Kind.READ, Kind.FETCH_AND_ADD])
def test_before_the_mailbox_is_there_nothing_can_be_in_it(kind):
    liar = Liar(known=False)
    liar.hosts[1].recv()
    liar.say(kind, length=8 if kind is not Kind.SEND_REQUEST else 1_000)
    assert liar.naks == [INVALID]


def test_sends_with_data_are_no_more_than_the_mailbox_has_slots():
    liar = Liar()
    for n in range(SLOTS):
        liar.say(Kind.SEND_REQUEST, length=1_000, argument=n)
    assert not liar.naks and len(liar.operations.responder) == SLOTS
    liar.say(Kind.SEND_REQUEST, length=1_000)
    assert liar.naks == [] and liar.operations.responder.entries[-1].syndrome is INVALID
    for _ in range(200):
        liar.say(Kind.SEND_REQUEST, length=1_000)
    assert len(liar.operations.responder) <= SLOTS + 1


def test_reads_that_cannot_begin_are_no_more_than_was_agreed():
    """They wait for a missing receive."""
    liar = Liar(max_dest_rd_atomic=4)
    liar.say(Kind.SEND)
    for _ in range(50):
        liar.say(Kind.FETCH_AND_ADD, length=8)
    assert len(liar.operations.responder) <= 6


def test_answers_nobody_acknowledges_are_no_more_than_was_agreed():
    liar = Liar(max_dest_rd_atomic=4)
    mr = liar.hosts[1].mr
    liar.write(0, ATOMIC_ETH.pack(va=mr.buf, rkey=mr.rkey, swap_or_add=1))
    for _ in range(8):
        liar.say(Kind.FETCH_AND_ADD, length=8)
    assert int.from_bytes(mr.read(8, 0), "little") == 4, "answers wait to be taken"
    for _ in range(50):
        liar.say(Kind.FETCH_AND_ADD, length=8)
    assert len(liar.operations.responder) <= 6 and liar.hosts[1].qp.sender.queue.sent_psn < 1 << 25


def test_requests_that_wait_for_a_receive_have_a_limit():
    liar = Liar()
    liar.hosts[1].qp.receiver._messages_max = 100
    for _ in range(150):
        liar.say(Kind.SEND)
    assert len(liar.operations.responder) <= 100
    assert liar.hosts[1].qp.receiver.counts["messages_refused"]


def test_completed_requests_cannot_be_more_than_there_were():
    liar = Liar()
    a, b = liar.hosts
    liar.send(WROpcode.SEND, end=1)
    liar.go()
    card = liar.pair.devices[1].card
    for msn in (2, 1 << 20, (1 << 23) - 1, 1 << 23):
        card.receive(wire.build_frame(
            opcode=wire.Opcode.ACKNOWLEDGE, dst_mac=card.mac, src_mac=1, src_ip=a.context.ip, dst_ip=b.context.ip,
            sport=9, dest_qp=b.qp.qp_num, psn=b.qp.sender.queue.sent_psn - 1,
            extensions=wire.AETH.pack(syndrome=wire.Syndrome.ACK, msn=msn)))
        liar.go()
    assert not len(b.cq) and b.qp.sender.msn == 0


@pytest.mark.parametrize("turn", range(60))
def test_random_ends_and_random_mailboxes(turn):
    """With any message, nothing raises, and only receives and the memory that the peer may write change."""
    seed = SEED + turn
    print(f"WEFT_SEED={SEED} python -m pytest tb/test/driver/operation/test_hostile_operations.py "
          f"-k 'random and {turn}'")
    rng = random.Random(seed)
    liar = Liar(access=AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ)
    b = liar.hosts[1]
    b.mr.write(rng.randbytes(1 << 16))
    for n in range(4):
        b.recv(1_000 * n, 1_000)
    before = b.mr.read(60_000, 4_000)
    for n in range(3):
        liar.send(rng.choice([WROpcode.SEND, WROpcode.RDMA_WRITE, WROpcode.ATOMIC_FETCH_AND_ADD]), (64_008, 8), end=1,
                  wr_id=n)
    for _ in range(12):
        target = rng.choice([(b.mr.buf + 5_000, b.mr.rkey, 100), (rng.getrandbits(64), rng.getrandbits(32), 100)])
        places = [(rng.getrandbits(64), rng.getrandbits(32), rng.choice([100, 50, rng.getrandbits(32)]))
                  for _ in range(rng.randint(1, 3))]
        data = rng.choice([pack_targets([target, *places]), rng.randbytes(64)])
        liar.write(rng.randrange(SLOTS) * REQUEST_BYTES, data)
        liar.say(rng.randrange(16), rng.choice([None, None, 0, rng.getrandbits(24)]),
                 rng.choice([0, 8, 100, 1_000, rng.getrandbits(32)]),
                 rng.choice([place(rng.randrange(SLOTS), rng.randrange(4)), rng.getrandbits(32)]), rng.getrandbits(32))
    assert b.mr.read(60_000, 4_000) == before
    assert len(b.cq) <= 7
    liar.settle(50_000)
    b.close()
