"""Pair of QPs that write to each other, are closed after a while, and are opened again with other numbers."""

from collections import deque

from weft.driver.queue.command import CommandError
from weft.driver.terms.enums import MTU, AccessFlag, WCOpcode, WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import wire
from weft.tb.sim.pair.settings import PEER
from weft.tb.sim.pair.two_cards import SIDES

SLOTS, SLOT_BYTES = 4, 6_000
CLOSE_TO_WRAP = 12
FAILURES, FORGERIES = "failures", "forgeries"
TIMEOUT_NS = 3_000_000        # longest duration of a request of an honest lane
OPENING, CONNECTING, RUNNING, CLOSING, CLOSED = range(5)


class Lane:
    """Lane of traffic; it advances by one step at a time, from the thread of either side.

    Each incarnation draws from ``eager`` its probability of posting a request when it may, and lasts ``lifetime_ns()``;
    the last one ends after all its requests, the others under traffic. ``harm`` is :data:`FAILURES` if a hazard makes
    the QPs fail, which are opened again, and :data:`FORGERIES` if responses are also forged, so that a completion with
    success does not imply that the data arrived. ``met`` has counts of :data:`~weft.tb.verify.soak.bins.BINS`.

    ``completed`` counts successful requests whose data was compared, ``refused`` memory regions that the card rejected.
    An ``excused`` incarnation may fail, because its card had an outage.
    """

    def __init__(self, number, contexts, rng, met, *, eager, harm=None, lifetime_ns=lambda: None):
        self.number, self.contexts, self.rng, self.met = number, contexts, rng, met
        self.fragile, self.trusted = harm is not None, harm != FORGERIES
        self._lifetime_ns, self._eagers = lifetime_ns, eager
        self.completed, self.refused, self.excused, self.registering, self._ending = 0, 0, False, False, False
        self.pds, self.cqs, self.mrs, self.qps = {}, {}, {}, {}
        self._generations, self._posted = {}, {}
        self._enter(OPENING)

    def _enter(self, state):
        self.state, self._done = state, set()

    def __repr__(self):
        return f"lane {self.number}"

    def excuse(self):
        """Allow the present incarnation to fail, and open the QPs again."""
        self.excused = True
        if self.state in (OPENING, CONNECTING, RUNNING):
            self._enter(CLOSING)

    def finish(self):
        """Post no further requests, and close when all are complete."""
        self._ending = True

    @property
    def closed(self):
        return self.state == CLOSED

    def advance(self, side, now):
        """Perform the current step of a side. Blocks where the verbs do."""
        if side not in self._done:
            (self._open, self._connect, self._run, self._close, lambda *_: None)[self.state](side, now)

    def _finish_step(self, side, state, then):
        """Record that ``side`` has done its part of ``state``, unless the other side has left that state."""
        if self.state != state:
            return
        self._done.add(side)
        if len(self._done) == len(SIDES):
            self._enter(then)

    def _open(self, side, now):
        if self._ending:
            self._enter(CLOSING)
            return
        rng, context = self.rng, self.contexts[side]
        if not self._done:
            self.excused = False
            self.mtu, self._eager = rng.choice(list(MTU)), rng.choice(self._eagers)
            top = 1 << wire.PSN_BITS
            self.psns = {s: top - rng.randint(1, CLOSE_TO_WRAP) if rng.random() < 0.5 else rng.randrange(top)
                         for s in SIDES}
            self.rsns = {s: rng.choice([0, (1 << wire.RSN_BITS) - rng.randint(1, CLOSE_TO_WRAP),
                                        (1 << 32) - rng.randint(1, CLOSE_TO_WRAP)]) for s in SIDES}
            self._posted = {s: deque() for s in SIDES}
            self._free = {s: deque(range(SLOTS)) for s in SIDES}
            self.until = None
        pd = self.pds[side] = PD(context)
        cq = self.cqs[side] = CQ(context, 8 * SLOTS)
        self.registering = True
        try:
            self.mrs[side] = MR(pd, 2 * SLOTS * SLOT_BYTES, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE)
        except CommandError:     # the card could not read the page list
            self.refused += 1
            self._enter(CLOSING)
            return
        finally:
            self.registering = False
        qp = self.qps[side] = QP(pd, rc_init_attr(cq, max_send_wr=SLOTS, max_recv_wr=2 * SLOTS), psn=self.psns[side])
        last = self._generations.get((side, qp.index))
        self.met["generation wrap"] += last is not None and qp.generation < last
        self._generations[side, qp.index] = qp.generation
        self.met["MR churn"] += 1
        self._finish_step(side, OPENING, CONNECTING)

    def _connect(self, side, now):
        """Connect the QP, with initial counters close to their wrap, which millions of losses would take to reach."""
        qp, peer = self.qps[side], self.qps[PEER[side]]
        try:
            qp.connect(peer.connection, path_mtu=self.mtu, timeout=6, retry_cnt=7, rnr_retry=7)
        except MemoryError:      # the knitting buffer will grow
            self._enter(CLOSING)
            return
        qp.receiver.holes.next_rsn = self.rsns[side]
        qp.sender._recovery._reports.expected = self.rsns[PEER[side]]
        self._finish_step(side, CONNECTING, RUNNING)
        if self.state == RUNNING:
            lifetime = self._lifetime_ns()
            self.until = None if lifetime is None else now + lifetime
            self.met[f"path MTU {wire.PMTUS[self.mtu]}"] += 1
            self._last = dict.fromkeys(SIDES, now)

    def _run(self, side, now):
        self._take(side, now)
        if self.state != RUNNING:
            return
        idle = not any(self._posted.values())
        if self._ending and idle or not self._ending and self.until is not None and now >= self.until:
            self.met["QP churn"] += not idle
            self._enter(CLOSING)
        elif not self._ending and self._free[side] and self.rng.random() < self._eager:
            self._post(side, now)

    def _close(self, side, now):
        self._take(side, now)
        self._note_wraps(side)
        for thing in (self.qps, self.mrs, self.cqs, self.pds):
            if side in thing:
                thing.pop(side).close()
        self._finish_step(side, CLOSING, CLOSED if self._ending else OPENING)

    def _post(self, side, now):
        rng, slot, peer = self.rng, self._free[side].popleft(), PEER[side]
        data = rng.randbytes(rng.choice([1, rng.randint(1, 300), rng.randint(1, SLOT_BYTES)]))
        at = slot * SLOT_BYTES
        imm = rng.random() < 0.5
        mine, theirs = self.mrs[side], self.mrs[peer]
        mine.write(data, offset=at)
        wr = SendWR(slot, WROpcode.RDMA_WRITE_WITH_IMM if imm else WROpcode.RDMA_WRITE, imm_data=slot,
                    sg=[SGE(mine.buf + at, len(data), mine.lkey)], rkey=theirs.rkey,
                    remote_addr=theirs.buf + SLOTS * SLOT_BYTES + at)
        if imm and self.qps[peer].engine.receives < SLOTS:
            self.qps[peer].post_recv(RecvWR(wr_id=slot))
        if not self._posted[side]:
            self._last[side] = now
        self._posted[side].append((slot, data))
        self.qps[side].post_send(wr)

    def _take(self, side, now):
        posted, peer = self._posted.get(side, ()), PEER[side]
        for wc in self.cqs[side].take(8 * SLOTS)[1] if side in self.cqs else ():
            if wc.opcode is WCOpcode.RDMA_WRITE and posted:
                slot, data = posted.popleft()
                self._last[side] = now
                if wc.status is WCStatus.SUCCESS and self.trusted and peer in self.mrs:
                    assert wc.wr_id == slot, f"{self}: requests of {side} ended out of order"
                    got = self.mrs[peer].read(len(data), (SLOTS + slot) * SLOT_BYTES)
                    assert got == data, f"{self}: bytes from {side} differ"
                    self.completed += 1
                self._free[side].append(slot)
            if wc.status is not WCStatus.SUCCESS:
                assert self._may_fail, f"{self}: {wc.status.name} on side {side}"
                if self.state == RUNNING:
                    self._enter(CLOSING)
        if self.state != RUNNING:
            return
        if posted and now - self._last[side] > TIMEOUT_NS:
            assert self._may_fail, f"{self}: side {side} waits for ever"
            self._enter(CLOSING)

    @property
    def _may_fail(self):
        """Return whether a failure is allowed: QPs are being closed one by one, or a hazard makes them fail."""
        return self.state != RUNNING or self.fragile or self.excused

    def _note_wraps(self, side):
        qp = self.qps.get(side)
        if qp is None or qp.sender is None:
            return
        self.met["PSN wrap"] += self.psns[side] >> wire.PSN_BITS != qp.sender.queue.una >> wire.PSN_BITS
        self.met["RSN wrap"] += self.rsns[side] >> wire.RSN_BITS != qp.receiver.holes.next_rsn >> wire.RSN_BITS
