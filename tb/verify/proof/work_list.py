"""Proof of the prefetcher's work list: no QP that was entered is lost."""

from amaranth.hdl import Array, Cat, Mux, Signal

from weft.hdl.adamap.prefetch.work_list import WorkList
from weft.hdl.contract.params import preset
from weft.tb.verify.proof.faulty import faulty, mutant, named
from weft.tb.verify.proof.specification import Spec

NAMED = mutant(named(
    WorkList, "qpn, valid = Signal(width), Signal()",
    "leaver, leaving, copied = Signal(width), Signal(), Signal()",
    "position, scanning, missed, looked = Signal(width), Signal(), Signal(), Signal()"),
    ("        enters = Signal()\n", "        enters = Signal()\n        read = Signal()\n"
                                   "        m.d.comb += read.eq(enter_read.data)\n"))    # the same logic with names


class WorkListSpec(Spec):
    """Doorbells, both streams, the consumer and creations at any time.

    Entries of a QP count from the cycle after it is taken.
    """

    name = "work_list"
    block = WorkList
    qps, places = 2, 4
    proof = {"kind": "unbounded", "seconds": 200}

    def specify(self, m):
        qps = self.qps
        m.submodules.dut = dut = self.block(preset("test").with_(qps=qps), places=self.places)
        self.free_members(dut)
        self.assume(~dut.forget_en | ~dut.o.ready)
        leaves = dut.o.valid & dut.o.ready
        enters, which = Signal(), Signal(range(qps))
        m.d.comb += [
            enters.eq(dut.post_stb | (dut.i[0].valid & dut.i[0].ready) | (dut.i[1].valid & dut.i[1].ready)),
            which.eq(Mux(dut.post_stb, dut.post_qpn,
                         Mux(dut.i[0].valid & dut.i[0].ready, dut.i[0].payload, dut.i[1].payload))),
        ]
        due, forgot = Signal(qps), Signal(qps)
        for q in range(qps):
            with m.If((leaves & (dut.o.payload == q)) | (dut.forget_en & (dut.forget_qpn == q))):
                m.d.sync += due[q].eq(0)
            with m.Elif(enters & (which == q)):
                m.d.sync += due[q].eq(1)
        m.d.sync += forgot.eq(forgot | Mux(dut.forget_en, 1 << dut.forget_qpn, 0))
        # Ranking: a scan visits every QP in two cycles.
        limit = 2 * qps + 5
        calm = self.cycles(m, ~(enters | dut.o.valid | dut.forget_en), limit + 1)
        self.check("no due QP is left once the list is idle", (calm < limit) | ~due.any())
        self.check("an empty list has no due QP", ~dut.empty | ~due.any())
        self.check("a QP that was never removed is offered once per insertion",
                   ~dut.o.valid | ((due | forgot) >> dut.o.payload)[0])
        offered = Signal(1 + len(which))
        m.d.sync += offered.eq(Cat(dut.o.valid & ~dut.o.ready & ~dut.forget_en, dut.o.payload))
        self.check("an offered QP stays until taken", ~offered[0] | dut.forget_en | (
            dut.o.valid & (dut.o.payload == offered[1:])))
        self._marked(m, dut, due, forgot, leaves, offered, calm)
        together = Signal()
        with m.If(leaves & enters & (which == dut.o.payload)):
            m.d.sync += together.eq(1)
        self.cover("a QP leaves in the cycle in which it is entered", together & leaves)
        self.cover("all QPs due", due.all())
        if self.places < qps:   # no QP was entered for longer than a queue takes, so that a scan found it
            idle, waited = self.cycles(m, ~enters, 15), self.cycles(m, ~enters & ~dut.o.valid, 15)
            found = dut.o.valid & (waited == 5) & (idle > 5)
            self.cover("a search finds a QP that did not fit into the queue", found)
            self.cover("a QP is entered during a search", self.once(m, found) & leaves & due.all())

    def _marked(self, m, dut, due, forgot, leaves, offered, calm):
        """Check the invariant of the QPs in the list; only a proof by induction requires it."""


class FewSlotsSpec(WorkListSpec):
    """Work list with four QPs and a queue of one entry, which overflows: a scan finds the other QPs.

    The checks are proven together: some describe the locations of the QPs in the list and the remaining scan time.
    """

    name = "work_list_few_slots"
    block = NAMED
    qps, places = 4, 1
    proof = {"kind": "induction", "seconds": 200}

    def _marked(self, m, dut, due, forgot, leaves, offered, calm):
        qps, limit = self.qps, 2 * self.qps + 4
        entered, left = ([self.inside(f"dut.{name}[{q}]", 1) for q in range(qps)] for name in ("entered", "left"))
        valid, again, enters, read, scanning, missed, looked, found, level = (
            self.inside(f"dut.{name}", 1) for name in (
                "valid_q", "again", "enters", "read", "scanning_q", "missed_q", "looked_q", "found",
                "queue.queue.level"))
        qpn, position, queued = (self.inside(f"dut.{name}", range(qps)) for name in (
            "qpn_q", "position_q", "queue.queue.storage[0]"))
        leaving, copied, leaver = (self.inside(f"dut.{name}", shape) for name, shape in (
            ("leaving_q", 1), ("copied_q", 1), ("leaver_q", range(qps))))
        inside = [e ^ Mux(leaving & (leaver == q), copied, f)
                  for q, (e, f) in enumerate(zip(entered, left, strict=True))]
        parts, soon = [~valid | (calm == 0), ~valid | (Array(entered)[qpn] == read ^ again), ~looked | scanning,
                       offered[0] <= level, ~offered[0] | (offered[1:] == queued), scanning | (position == 0),
                       ~enters | ~Array(inside)[qpn],
                       ~leaving | (forgot >> leaver)[0] | (Array(entered)[leaver] == copied)], []
        for q in range(qps):
            coming, holds, here = enters & (qpn == q), level & (queued == q), scanning & (position == q)
            ahead = scanning & ((position < q) | (here & ~(looked & ~found)))
            parts += [
                ~due[q] | inside[q] | coming, ~inside[q] | holds | missed | ahead,
                forgot[q] | (due[q] == inside[q] | coming), forgot[q] | ~holds | inside[q],
                forgot[q] | ~holds | ~scanning | (position > q) | (here & looked & ~found),
                forgot[q] | ~(here & looked) | Mux(found, inside[q] & ~holds, ~inside[q] | holds | missed),
            ]
            rest = 2 * (q - position) + Mux(looked, 1, 2)
            lap = Mux(scanning, 2 * (qps - position) + 1 - looked, 1) + 2 * q + 2
            soon.append(inside[q] & (holds | (ahead & (calm + rest <= limit)) | (missed & (calm + lap <= limit))))
        self.check("a due QP is marked, a marked QP is in the queue or will be found", parts)
        self.check("every search ends", (calm == 0) | dut.o.valid | ~due.any() | Cat(soon).any())


SPECS = [WorkListSpec, FewSlotsSpec]
BOTH = (WorkListSpec, FewSlotsSpec)
FAULTY = faulty(FewSlotsSpec, [
    ("a due QP is marked, a marked QP is in the queue or will be found",
     "enter_write.addr.eq(qpn)", "enter_write.addr.eq(chosen)"),
    ("every search ends", "m.d.sync += [looked.eq(0), position.eq(position + 1)]", "m.d.sync += looked.eq(0)"),
    ("no due QP is left once the list is idle",
     "        with m.If(enters & passed & ~queue.i.ready):\n", "        with m.If(0):\n"),
    ("no due QP is left once the list is idle",
     "(queue.i.ready & ~(enters & passed))", "queue.i.ready"),
    ("an empty list has no due QP", "& ~scanning & ~missed)", "& ~scanning)"),
    ("a QP that was never removed is offered once per insertion",
     "passed.eq(~(scanning | starts) | (qpn <= position))", "passed.eq(1)"),
]) + faulty(BOTH, [
    ("no due QP is left once the list is idle",
     "self.forget_en | (queue.o.valid & queue.o.ready)", "self.forget_en"),
    ("a QP that was never removed is offered once per insertion", "again.eq(enters & (qpn == chosen))", "again.eq(0)"),
    ("an offered QP stays until taken", "queue.o.ready.eq(self.o.ready)", "queue.o.ready.eq(~self.forget_en)"),
]) + faulty(WorkListSpec, [
    ("an empty list has no due QP", "self.empty.eq(~valid & (queue.level == 0)", "self.empty.eq((queue.level == 0)"),
    ("no due QP is left once the list is idle",
     "again.eq(enters & (qpn == chosen))", "again.eq(valid & (qpn == chosen))"),
])
