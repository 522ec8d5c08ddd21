"""Error statuses of completions, and their causes between two hosts, at the end that gets the completion.

======================= =========== ==========================================================================
status                  end         cause
======================= =========== ==========================================================================
``LOC_LEN_ERR``         receiver    a send is longer than the receive it takes
``LOC_LEN_ERR``         sender      an atomic whose result does not have 8 bytes
``LOC_QP_OP_ERR``       sender      a read, and the card has no free entry for the window that the peer writes
``LOC_QP_OP_ERR``       receiver    the same for a long send that arrives
``LOC_PROT_ERR``        sender      an SGE with an invalid key, with an ``rkey``, or with read-only memory
``LOC_PROT_ERR``        receiver    a receive with read-only memory
``WR_FLUSH_ERR``        either      requests after a failed one; all requests of a QP that enters ERR
``BAD_RESP_ERR``        sender      the response of the peer does not match the request
``REM_INV_REQ_ERR``     sender      the peer's receive is too short; an atomic at an odd address
``REM_ACCESS_ERR``      sender      a key, a range or a permission that the peer's region does not have; its ``lkey``
``REM_OP_ERR``          sender      the peer's receive has read-only memory, or gets no window
``RETRY_EXC_ERR``       sender      no response
``RNR_RETRY_EXC_ERR``   sender      the peer posts no receive
``FATAL_ERR``           sender      the card failed
======================= =========== ==========================================================================

``LOC_PROT_ERR`` also ends a request whose data the card cannot read: its pages are gone, or PCIe has an error.

The other statuses have no cause here: ``LOC_ACCESS_ERR`` (the card itself rejects the peer's write, without a receive),
``MW_BIND_ERR`` (there are no memory windows), those of RD (``LOC_EEC_OP_ERR``, ``LOC_RDD_VIOL_ERR``,
``REM_INV_RD_REQ_ERR``, ``INV_EECN_ERR``, ``INV_EEC_STATE_ERR``), of XRC and extended connections (``REM_ABORT_ERR``),
of vendors (``RESP_TIMEOUT_ERR``, ``GENERAL_ERR``), and of tag matching (``TM_ERR``, ``TM_RNDV_INCOMPLETE``).
"""

from weft.driver.protocol.message_end import Kind, MessageEnd
from weft.driver.terms.enums import AccessFlag, QPAttrMask, QPState, WCStatus, WROpcode
from weft.driver.verbs.mr import MR
from weft.driver.verbs.qp import QPAttr
from weft.driver.verbs.wr import SGE
from weft.hdl.contract import wire
from weft.tb.test.driver.faulty_link import again_valid, opcode_of

SEND, WRITE, READ, ADD = (WROpcode.SEND, WROpcode.RDMA_WRITE, WROpcode.RDMA_READ, WROpcode.ATOMIC_FETCH_AND_ADD)
ABSENT = {"SUCCESS", "LOC_ACCESS_ERR", "MW_BIND_ERR", "LOC_EEC_OP_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR",
          "INV_EECN_ERR", "INV_EEC_STATE_ERR", "REM_ABORT_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR", "TM_ERR",
          "TM_RNDV_INCOMPLETE"}
LONG = 300      # a send that needs windows


def short_receive(pair):
    pair.hosts[1].recv(0, 99)
    pair.send(SEND, (0, 100))


def wrong_lkey(pair):
    mr = pair.hosts[0].mr
    pair.send(WRITE, SGE(mr.buf, 8, mr.lkey ^ 1))


def own_rkey(pair):
    mr = pair.hosts[0].mr
    pair.send(WRITE, SGE(mr.buf, 8, mr.rkey))


def protected_destination(pair):
    """Read into memory that may not be written."""
    mr = MR(pair.hosts[0].pd, 64, AccessFlag(0))
    pair.send(READ, SGE(mr.buf, 8, mr.lkey))


def protected_receive(pair):
    b = pair.hosts[1]
    mr = MR(b.pd, 64, AccessFlag(0))
    b.recv(sges=[SGE(mr.buf, 64, mr.lkey)])
    pair.send(SEND, (0, 64))


def error_state(pair):
    pair.hosts[1].recv()
    for host in pair.hosts:
        host.qp.modify(QPAttr(qp_state=QPState.ERR), QPAttrMask.STATE)
    pair.send(WRITE, (0, 8))


def wrong_answer(pair):
    """Answer the read as an atomic would be answered."""
    link = pair.pair.links[1]
    deliver = link.deliver

    def spoilt(frame):
        at = wire.RETH_OFFSET
        if opcode_of(frame) == wire.Opcode.WRITE_ONLY_IMM:
            va, key, _ = MessageEnd(Kind.ATOMIC_RESULT, 0, 8).words()
            frame = again_valid(frame[:at] + wire.RETH.pack(va=va, rkey=key) + frame[at + wire.RETH.size_bytes:])
        deliver(frame)

    pair.send(READ, (0, 8))
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    link.deliver = spoilt
    pair.send(READ, (0, 8))


def wrong_rkey(pair, opcode=READ):
    pair.send(opcode, (0, 8), rkey=pair.hosts[1].mr.rkey ^ 1)


def foreign_lkey(pair):
    pair.send(READ, (0, 8), rkey=pair.hosts[1].mr.lkey)


def atomic_of_four_bytes(pair):
    pair.send(ADD, (0, 4))


def atomic_at_an_odd_address(pair):
    pair.send(ADD, (0, 8), at=4)


def fill(pair, end):
    """Let an end use up its memory regions; the mailboxes exist."""
    pair.send(READ, (0, 8))
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    host = pair.hosts[end]
    pair.run_until(lambda: not host.context.engine.lender.windows.open)
    for _ in range(host.context.mr_indices.free):
        MR(host.pd, 64)


def no_space_to_read(pair):
    fill(pair, 0)
    pair.send(READ, (0, 8))


def no_space_to_receive(pair):
    pair.hosts[1].recv(0, LONG)
    fill(pair, 1)
    pair.send(SEND, (0, LONG))


def silence(pair):
    pair.pair.links[1].drop = lambda frame: True
    pair.send(WRITE, (0, 8))


def no_receive(pair):
    pair.send(SEND, (0, 8))


def failed_card(pair):
    pair.hosts[1].recv()
    pair.send(READ, (0, 8))
    for host in pair.hosts:
        host.context.engine.fail("the test requires it")


# (status of the sender's request, status of the receiver's, function that provokes them); None: no completion.
TABLE = [
    (WCStatus.REM_INV_REQ_ERR, WCStatus.LOC_LEN_ERR, short_receive),
    (WCStatus.LOC_LEN_ERR, None, atomic_of_four_bytes),
    (WCStatus.LOC_QP_OP_ERR, None, no_space_to_read),
    (WCStatus.REM_OP_ERR, WCStatus.LOC_QP_OP_ERR, no_space_to_receive),
    (WCStatus.LOC_PROT_ERR, None, wrong_lkey),
    (WCStatus.LOC_PROT_ERR, None, own_rkey),
    (WCStatus.LOC_PROT_ERR, None, protected_destination),
    (WCStatus.REM_OP_ERR, WCStatus.LOC_PROT_ERR, protected_receive),
    (WCStatus.WR_FLUSH_ERR, WCStatus.WR_FLUSH_ERR, error_state),
    (WCStatus.BAD_RESP_ERR, None, wrong_answer),
    (WCStatus.REM_INV_REQ_ERR, None, atomic_at_an_odd_address),
    (WCStatus.REM_ACCESS_ERR, None, wrong_rkey),
    (WCStatus.REM_ACCESS_ERR, None, foreign_lkey),
    (WCStatus.RETRY_EXC_ERR, None, silence),
    (WCStatus.RNR_RETRY_EXC_ERR, None, no_receive),
    (WCStatus.FATAL_ERR, WCStatus.WR_FLUSH_ERR, failed_card),
]


def check(pair, sender, receiver, provoke):
    """Provoke an error; check the completions of both ends, their QP states, and the flush of later requests."""
    provoke(pair)
    assert pair.statuses(0, 1) == [sender], provoke.__name__
    assert pair.hosts[0].qp.qp_state is QPState.ERR
    if receiver is not None:
        assert pair.statuses(1, 1) == [receiver] and pair.hosts[1].qp.qp_state is QPState.ERR
    pair.send(ADD, (0, 8))
    pair.hosts[0].recv()
    assert pair.statuses(0, 2) == [WCStatus.WR_FLUSH_ERR] * 2
