"""Scenarios of roce-sim (github.com/datenlord/roce-sim, ``src/case/``): 10 successful and 18 erroneous ones.

The tests keep roce-sim's names. roce-sim drives Linux's ``rxe`` against its own endpoint: in ``rxe_`` cases the
device under test is the requester, in ``sim_`` cases it is the responder. Here both ends are cards: host 0 is the
requester of ``rxe_`` cases, host 1 that of ``sim_`` cases. Faults that roce-sim injects in its endpoint are injected on
the link. The outcome differs where the protocol differs by design; the table gives the reason.

=============================================== ============================ ==================================
scenario                                         in roce-sim                  here
=============================================== ============================ ==================================
``{rxe,sim}_{send,write,write_imm,read,``        success                      success
``atomic_cas}_success``
``rxe_write_partial_retry``                      NAK, go-back-N               only the lost packet is sent again
``sim_write_partial_retry``                      duplicates are ignored       the same, and memory is unchanged
``sim_read_partial_retry``                       rest of the read again       only the lost packet is sent again
``rxe_bad_response``                             QP in error                  BAD_RESP_ERR
``rxe_ghost_ack``, ``rxe_implied_nak_...``       retried, then QP in error    ignored: success if another one
                                                                              arrives, RETRY_EXC_ERR otherwise
``rxe_local_ack_timeout_...``                    the same                     the same
``rxe_psn_retry_limit_exceeded``                 QP in error, peer in RTS     RETRY_EXC_ERR, peer in RTS
``sim_psn_retry_limit_not_exceeded``             success after a retry        success
``{rxe,sim}_rkey_violation``                     NAK, QP in error             REM_ACCESS_ERR, both QPs in error
``{rxe,sim}_rnr_nak_retry_limit_not_exceeded``   success                      success
``rxe_rnr_nak_retry_limit_exceeded``             QP in error                  RNR_RETRY_EXC_ERR
``sim_remote_operation_err``                     the peer's CQ is full: NAK   the peer's CQ overruns, which ends
                                                                              the connection: RETRY_EXC_ERR
``sim_unexpected_opcode``                        NAK, QP in error             opcode unknown to this card:
                                                                              dropped, counted, sent again:
                                                                              success
=============================================== ============================ ==================================
"""

import pytest

from weft.driver.protocol.message_end import Kind, MessageEnd, message_end
from weft.driver.terms.enums import MTU, EventType, QPState, WCOpcode, WCStatus, WROpcode
from weft.hdl.contract import wire
from weft.tb.test.driver.faulty_link import Scenario, again_valid, ghosts, lose, opcode_of

FAST = {"timeout": 4, "retry_cnt": 1}
PMTU, LENGTH = 256, 1024
DATA = b"".join(bytes([n]) * PMTU for n in (1, 2, 3, 4))     # a different byte in every packet
SEND, WRITE, WRITE_IMM, READ, SWAP = (WROpcode.SEND, WROpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM,
                                      WROpcode.RDMA_READ, WROpcode.ATOMIC_CMP_AND_SWP)
SUCCESS = WCStatus.SUCCESS
READ_REQUEST = 0x0C      # RC opcode of InfiniBand that this card does not implement


# ---------------------------------------------------------------------------------------- successful


@pytest.mark.parametrize("requester", [0, 1], ids=["rxe", "sim"])
class TestSuccess:
    """``rxe_..._success`` and ``sim_..._success``."""

    def test_send_success(self, requester):
        scene = Scenario(requester, met=False)
        scene.peer.recv(0, 1)
        scene.me.mr.write(b"\xff")
        scene.ask(SEND, 1)
        assert scene.outcome() is SUCCESS
        [got] = scene.completions(1 - requester, 1)
        assert (got.status, got.opcode, got.byte_len) == (SUCCESS, WCOpcode.RECV, 1)
        assert scene.peer.mr.read(2, 0) == b"\xff\0"
        scene.close()

    def test_write_success(self, requester):
        scene = Scenario(requester, met=False)
        scene.me.mr.write(b"\xff")
        scene.ask(WRITE, 1)
        assert scene.outcome() is SUCCESS and scene.peer.mr.read(2, 0) == b"\xff\0"
        assert scene.me.qp.qp_state is scene.peer.qp.qp_state is QPState.RTS
        scene.close()

    def test_write_imm_success(self, requester):
        scene = Scenario(requester, met=False)
        scene.peer.recv(0, 0)
        scene.me.mr.write(b"\xff")
        scene.ask(WRITE_IMM, 1, imm=0x1234)
        assert scene.outcome() is SUCCESS and scene.peer.mr.read(2, 0) == b"\xff\0"
        [got] = scene.completions(1 - requester, 1)
        assert (got.status, got.opcode, got.imm_data) == (SUCCESS, WCOpcode.RECV_RDMA_WITH_IMM, 0x1234)
        scene.close()

    def test_read_success(self, requester):
        scene = Scenario(requester, met=False)
        scene.peer.mr.write(b"\xff")
        scene.ask(READ, 1)
        assert scene.outcome() is SUCCESS and scene.me.mr.read(2, 0) == b"\xff\0"
        assert scene.me.qp.qp_state is scene.peer.qp.qp_state is QPState.RTS
        scene.close()

    def test_atomic_cas_success(self, requester):
        scene = Scenario(requester, met=False)
        scene.peer.mr.write((1).to_bytes(8, "little"))
        scene.ask(SWAP, 8, compare_add=1, swap=2)
        assert scene.outcome() is SUCCESS
        assert scene.peer.mr.read(8, 0) == (2).to_bytes(8, "little")
        assert scene.me.mr.read(8, 0) == (1).to_bytes(8, "little")
        scene.close()


# ----------------------------------------------------------------------------------------- erroneous


def test_rxe_write_partial_retry():
    scene = Scenario()
    data = DATA
    scene.me.mr.write(data)
    scene.on_the_way(0, lose(1))
    scene.ask(WRITE, LENGTH)
    assert scene.outcome() is SUCCESS and scene.peer.mr.read(LENGTH, 0) == data
    assert scene.repeated() == [1, 0]
    scene.close()


def test_sim_write_partial_retry():
    """Packets arrive again after the program has overwritten their data."""
    scene = Scenario(requester=1)
    frames = []
    scene.on_the_way(1, lambda frame: frames.append(frame) or frame)
    scene.me.mr.write(b"\xff" * LENGTH)
    scene.ask(WRITE, LENGTH)
    assert scene.outcome() is SUCCESS and scene.peer.mr.read(LENGTH, 0) == b"\xff" * LENGTH
    scene.settle(20_000)
    scene.peer.mr.write(bytes(LENGTH))
    data = [frame for frame in frames if opcode_of(frame) in wire.DATA_OPCODES]
    assert len(data) == LENGTH // PMTU
    card = scene.pair.devices[0].card
    before = card.counters["drop_duplicate"] + card.counters["drop_stale_psn"]
    for frame in data[1:]:
        card.receive(frame)
    scene.settle(20_000)
    assert card.counters["drop_duplicate"] + card.counters["drop_stale_psn"] - before == len(data) - 1
    assert scene.peer.mr.read(LENGTH, 0) == bytes(LENGTH)
    assert scene.me.qp.qp_state is scene.peer.qp.qp_state is QPState.RTS
    scene.close()


def test_sim_read_partial_retry():
    scene = Scenario(requester=1)
    data = DATA
    scene.peer.mr.write(data)
    scene.on_the_way(0, lose(1))
    scene.ask(READ, LENGTH)
    assert scene.outcome() is SUCCESS and scene.me.mr.read(LENGTH, 0) == data
    assert scene.repeated() == [0, 1]
    scene.ask(READ, LENGTH - PMTU, at=PMTU)
    assert scene.outcome() is SUCCESS and scene.me.mr.read(LENGTH - PMTU, 0) == data[PMTU:]
    assert scene.me.qp.qp_state is QPState.RTS
    scene.close()


def test_rxe_bad_response():
    """The response is marked as that of an atomic instead of a read."""
    scene = Scenario()
    spoilt = []

    def change(frame):
        if opcode_of(frame) != wire.Opcode.WRITE_ONLY_IMM:
            return frame
        at = wire.RETH_OFFSET
        reth = wire.RETH.unpack(frame[at:at + wire.RETH.size_bytes])
        imm = wire.IMMDT.unpack(frame[at + wire.RETH.size_bytes:][:wire.IMMDT.size_bytes]).imm
        end = message_end(reth.va, reth.rkey, imm)
        if end.kind is not Kind.READ_DATA:
            return frame
        va, key, imm = MessageEnd(Kind.ATOMIC_RESULT, end.sequence, 8, end.argument).words()
        spoilt.append(frame)
        return again_valid(frame[:at] + wire.RETH.pack(va=va, rkey=key, dma_length=reth.dma_length)
                           + frame[at + wire.RETH.size_bytes:])

    scene.on_the_way(1, change)
    scene.ask(READ, LENGTH)
    assert scene.outcome() is WCStatus.BAD_RESP_ERR and spoilt
    assert scene.me.qp.qp_state is QPState.ERR


@pytest.mark.parametrize("opcode", [READ, WRITE, SWAP])
def test_rxe_ghost_ack(opcode):
    """An acknowledgement of a PSN that was never sent acknowledges nothing."""
    scene = Scenario(**FAST)
    scene.on_the_way(1, ghosts(1 << 30))
    scene.ask(opcode, 8)
    if opcode is WRITE:
        assert scene.outcome() is WCStatus.RETRY_EXC_ERR and scene.me.qp.qp_state is QPState.ERR
    else:           # the response is not an acknowledgement, and arrives
        assert scene.outcome() is SUCCESS and scene.me.qp.qp_state is QPState.RTS
    assert scene.me.qp.sender.counts["stray_acks"] and scene.peer.qp.qp_state is QPState.RTS


def test_rxe_implied_nak_sequence_error_retry_limit_exceeded():
    """Neither the response nor a valid acknowledgement arrives."""
    scene = Scenario(timeout=4, retry_cnt=0)
    scene.peer.mr.write(b"\xff")
    ghost = ghosts(1 << 30)
    scene.on_the_way(1, lambda frame: None if opcode_of(frame) in wire.DATA_OPCODES else ghost(frame))
    scene.ask(READ, 1)
    assert scene.outcome() is WCStatus.RETRY_EXC_ERR and scene.me.mr.read(1, 0) == b"\0"
    assert (scene.me.qp.qp_state, scene.peer.qp.qp_state) == (QPState.ERR, QPState.RTS)


def test_rxe_implied_nak_sequence_error_retry_limit_not_exceeded():
    scene = Scenario(retry_cnt=6)
    scene.peer.mr.write(b"\xff")
    ghost, lost = ghosts(1), lose(0)
    scene.on_the_way(1, lambda frame: (frame := lost(frame)) and ghost(frame))
    scene.ask(READ, 1)
    assert scene.outcome() is SUCCESS and scene.me.mr.read(1, 0) == b"\xff"
    assert scene.me.qp.qp_state is QPState.RTS
    scene.close()


@pytest.mark.parametrize("opcode", [READ, WRITE, SEND, SWAP])
def test_rxe_local_ack_timeout_retry_limit_exceeded(opcode):
    scene = Scenario(**FAST)
    scene.peer.recv(0, 8)
    scene.on_the_way(1, lambda frame: None)
    scene.ask(opcode, 8)
    assert scene.outcome() is WCStatus.RETRY_EXC_ERR and scene.me.qp.qp_state is QPState.ERR


@pytest.mark.parametrize("opcode", [READ, WRITE, SEND, SWAP])
def test_rxe_local_ack_timeout_retry_limit_not_exceeded(opcode):
    """The first three frames of the peer are lost."""
    scene = Scenario()
    scene.peer.recv(0, 8)
    left = [3]

    def change(frame):
        left[0] -= 1
        return None if left[0] >= 0 else frame

    scene.on_the_way(1, change)
    scene.ask(opcode, 8)
    assert scene.outcome() is SUCCESS and left[0] < 0
    assert scene.me.qp.qp_state is QPState.RTS
    scene.close()


def test_rxe_psn_retry_limit_exceeded():
    """The peer waits for a PSN that was never sent."""
    scene = Scenario(met=False, connect=False)
    for host, other, shift in ((scene.me, scene.peer, 0), (scene.peer, scene.me, -1)):
        peer = other.qp.connection
        host.qp.connect(peer, path_mtu=MTU.MTU_256, qp_access_flags=host.access, **FAST,
                        rq_psn=(peer.psn + shift) % (1 << 24))
    scene.peer.mr.write(b"\xff")
    scene.ask(READ, 1)
    assert scene.outcome() is WCStatus.RETRY_EXC_ERR and scene.me.mr.read(1, 0) == b"\0"
    assert (scene.me.qp.qp_state, scene.peer.qp.qp_state) == (QPState.ERR, QPState.RTS)


def test_sim_psn_retry_limit_not_exceeded():
    """The request of the first of two reads is lost."""
    scene = Scenario(requester=1)
    scene.peer.mr.write(b"\xff\xee")
    scene.on_the_way(1, lose(0))
    scene.ask(READ, 1, wr_id=1)
    scene.ask(READ, 1, at=1, local=1, wr_id=2)
    assert [wc.wr_id for wc in scene.completions(1, 2) if wc.status is SUCCESS] == [1, 2]
    assert scene.me.mr.read(2, 0) == b"\xff\xee" and scene.me.qp.qp_state is QPState.RTS
    scene.close()


@pytest.mark.parametrize("requester", [0, 1], ids=["rxe", "sim"])
@pytest.mark.parametrize("opcode", [READ, WRITE, SWAP])
def test_rkey_violation(requester, opcode):
    """``rxe_rkey_violation`` and ``sim_rkey_violation``, for every operation with a key."""
    scene = Scenario(requester)
    scene.peer.mr.write(b"\xff" * 8)
    scene.ask(opcode, 8, rkey=scene.peer.mr.rkey ^ 1)
    assert scene.outcome() is WCStatus.REM_ACCESS_ERR and scene.me.qp.qp_state is QPState.ERR
    assert not any(scene.me.mr.read(8, 0)) and scene.peer.mr.read(8, 0) == b"\xff" * 8
    assert scene.peer.qp.qp_state is QPState.ERR


def test_rxe_rnr_nak_retry_limit_exceeded():
    scene = Scenario(rnr_retry=0, min_rnr_timer=1)
    scene.ask(SEND, 1)
    assert scene.outcome() is WCStatus.RNR_RETRY_EXC_ERR and scene.me.qp.qp_state is QPState.ERR


@pytest.mark.parametrize("requester", [0, 1], ids=["rxe", "sim"])
def test_rnr_nak_retry_limit_not_exceeded(requester):
    """``rxe_...`` and ``sim_...``: the receive is posted after two RNR NAKs."""
    scene = Scenario(requester, rnr_retry=6, min_rnr_timer=1)
    scene.me.mr.write(b"\xff")
    scene.ask(SEND, 1)
    scene.run_until(lambda: scene.me.qp.sender._rnr >= 2)
    scene.peer.recv(0, 1)
    assert scene.outcome() is SUCCESS and scene.peer.mr.read(1, 0) == b"\xff"
    assert scene.me.qp.qp_state is scene.peer.qp.qp_state is QPState.RTS
    scene.close()


def test_sim_remote_operation_err():
    """The CQ of the peer has space for one completion."""
    scene = Scenario(requester=1, met=False, cqe=1, **FAST)
    for at in range(2):
        scene.peer.recv(at, 1)
    scene.me.mr.write(b"\xff")
    scene.ask(SEND, 1)
    assert scene.outcome() is SUCCESS
    scene.ask(SEND, 1)
    assert scene.outcome() is WCStatus.RETRY_EXC_ERR
    assert scene.peer.cq.overrun and scene.peer.qp.qp_state is QPState.ERR
    assert EventType.CQ_ERR in [event.event_type for event in scene.peer.context.async_events]


def test_sim_unexpected_opcode():
    """The third packet of a write has the opcode of a read request."""
    scene = Scenario(requester=1)
    data = DATA
    scene.me.mr.write(data)
    seen = [0]

    def change(frame):
        seen[0] += opcode_of(frame) in wire.DATA_OPCODES
        if seen[0] != 3:
            return frame
        seen[0] += 1
        at = wire.BTH_OFFSET
        return again_valid(frame[:at] + bytes([READ_REQUEST]) + frame[at + 1:])

    scene.on_the_way(1, change)
    scene.ask(WRITE, LENGTH)
    assert scene.outcome() is SUCCESS and scene.peer.mr.read(LENGTH, 0) == data
    counters = scene.pair.devices[0].card.counters
    assert counters["drop_unknown_opcode"] + counters["rx_raw_frames"] and scene.repeated()[0] == 1
    scene.close()
