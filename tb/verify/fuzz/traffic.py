"""What moves between the QPs of a fuzzed pair: a write to the end of the peer's memory, and what is overheard of it."""

from weft.driver.terms.enums import WCStatus, WROpcode
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.sim.hostile.fuzzed_frames import FrameFuzzer, destination

LENGTH, PART = 16_384, 4_096
SENT, RECEIVED = 1, 7        # numbers of the work requests
LOST = 0.2                   # of what is for a victim


def post_write(me, you, qp, peer, data):
    """Post a write with immediate from ``me``, and the receive that it takes; both are endpoints."""
    me.mr.write(data)
    peer.post_recv(RecvWR(RECEIVED))
    wr = SendWR(SENT, sg=[SGE(me.mr.buf, PART, me.mr.lkey)], opcode=WROpcode.RDMA_WRITE_WITH_IMM, imm_data=5)
    wr.set_wr_rdma(you.mr.rkey, you.mr.buf + LENGTH - PART)
    qp.post_send(wr)


def has_ended(cq):
    """Whether both completions of a side are there."""
    return len(cq) >= 2


def check_write(end, cq, data):
    """The completions of a side are there and right, and ``data`` came."""
    found = sorted((wc.wr_id, wc.status) for wc in cq.take(8)[1])
    assert found == [(SENT, WCStatus.SUCCESS), (RECEIVED, WCStatus.SUCCESS)], found
    assert end.mr.read(PART, LENGTH - PART) == data, "the bytes differ"


def check_quiet(cq):
    """Nothing completed while nothing was posted."""
    found = [(wc.wr_id, wc.status.name) for wc in cq.take(64)[1]]
    assert not found and not cq.overrun, f"completions of nothing: {found}"


class Overheard:
    """The genuine frames for the two QPs of a host.

    Parameters
    ----------
    rng : random.Random
    """

    def __init__(self, rng):
        self._rng = rng
        self._victims, self._honest = [], []

    def hear(self, frame, *, victim, honest):
        """Keep a frame for one of the QPs, ``victim`` None if there is none; true if it is to be lost."""
        if honest.qp_num == (qpn := destination(frame)):
            self._honest.append(bytes(frame))
        if victim is None or victim.qp_num != qpn:
            return False
        self._victims.append(bytes(frame))
        return self._rng.random() < LOST

    def forget(self):
        """The victim has ended."""
        self._victims.clear()
        self._honest.clear()

    def fuzzer(self):
        """A :class:`FrameFuzzer` of what was heard so far."""
        return FrameFuzzer(self._rng, list(self._victims), list(self._honest))
