"""Proof of the queue of waiting headers: none is lost or duplicated, and the oldest eligible header is tried."""

from amaranth.hdl import Array, Cat, Mux, Signal, Value
from amaranth.lib import data

from weft.hdl.adamap.match.wait_queue import MatchItem, WaitQueue, group_of
from weft.hdl.contract.params import preset
from weft.tb.verify.proof.faulty import faulty
from weft.tb.verify.proof.specification import Spec

PLACES, NUMBER_BITS = 4, 2
GROUP = group_of(PLACES)


class WaitQueueSpec(Spec):
    """Headers of two QPs, with any numbers; the matcher does anything that the ports allow, at any time.

    A model next to the queue stores the header of each place and the order of arrival; the place of a new header is
    read from the queue. The checks are proven together: one of them describes how the queue stores the headers.
    """

    name = "wait_queue"
    block = WaitQueue
    proof = {"kind": "together", "seconds": 300}

    def specify(self, m):
        m.submodules.dut = dut = self.block(preset("test").with_(qps=2, match_queue=PLACES))
        self.free_members(dut, "item", "qpn_next", "wake_qpn", "query_qpn", "waiting_qpn", "count_qpn")
        header = data.StructLayout({"valid": 1, "qpn": 1, "awake": 1, "busy": 1, "number": NUMBER_BITS,
                                    "before": PLACES})
        places = Array(Signal(header, name=f"place{k}") for k in range(PLACES))     # before: older headers
        number, new = self.free(NUMBER_BITS, "number"), Signal(1, name="new")
        where = self.inside("dut.free_place", range(PLACES))
        wakes, asks, waits, counted = (self.free(1, name) for name in ("wakes", "asks", "waits", "counted"))
        woken = Signal(data.StructLayout({"valid": 1, "qpn": 1}))       # a QP is awake one cycle after its wake-up
        m.d.sync += [new.eq(dut.qpn_next), woken.valid.eq(dut.wake_stb), woken.qpn.eq(wakes)]
        m.d.comb += [dut.qpn_next.eq(self.free(1, "qpn")), dut.item.qpn.eq(new), dut.item.rsn.eq(number),
                     dut.wake_qpn.eq(wakes), dut.query_qpn.eq(asks), dut.waiting_qpn[0].eq(waits),
                     dut.count_qpn.eq(counted)]
        valid, place = Cat(p.valid for p in places), Signal(range(PLACES))
        m.d.sync += place.eq(dut.place_next)
        self.assume(dut.insert_en + dut.remove_en + dut.put_back_en <= 1)
        self.assume(~dut.insert_en | ~valid.all())
        self.assume(~(dut.remove_en | dut.put_back_en) | (places[place].valid & places[place].busy))
        self.assume(~dut.put_back_en | (places[place].qpn == new))
        # The header for which a query is allowed.
        shown, leaves = Signal(data.StructLayout({"valid": 1, "place": range(PLACES)})), Signal()
        m.d.comb += leaves.eq(dut.remove_en & (place == shown.place))
        with m.If(dut.show_en):
            m.d.sync += [shown.place.eq(dut.show_place), shown.valid.eq(
                places[dut.show_place].valid & ~(dut.remove_en & (place == dut.show_place)))]
        with m.Elif(leaves):
            m.d.sync += shown.valid.eq(0)
        self.assume(~(dut.query_en & dut.query_queued) | (shown.valid & ~leaves))
        # The header of the last query; invalid after its removal.
        asked = Signal(data.StructLayout({"valid": 1, "qpn": 1, "queued": 1, "place": range(PLACES)}))
        with m.If(dut.query_en):
            m.d.sync += [asked.valid.eq(1), asked.qpn.eq(asks), asked.queued.eq(dut.query_queued),
                         asked.place.eq(shown.place)]
        with m.Elif(dut.remove_en & asked.queued & (place == asked.place)):
            m.d.sync += asked.valid.eq(0)
        picks = dut.pick_en & dut.offered
        may = [p.valid & p.awake & ~p.busy for p in places]
        mates = [p.valid & (p.qpn == new) for p in places]
        best, slept, again = Signal(range(PLACES)), places[place].qpn, Signal(PLACES)
        for k, p in enumerate(places):
            with m.If(may[k] & ~(p.before & Cat(may)).any()):
                m.d.comb += best.eq(k)
            with m.If(dut.insert_en & (where == k)):
                m.d.sync += [p.valid.eq(1), p.qpn.eq(new), p.busy.eq(0), p.number.eq(number), p.before.eq(valid),
                             p.awake.eq(Mux(Cat(mates).any(),
                                            Cat(e & q.awake for e, q in zip(mates, places, strict=True)).any(),
                                            dut.insert_awake) | (woken.valid & (woken.qpn == new))),
                             again[k].eq(0)]
            with m.Elif(dut.remove_en & (place == k)):
                m.d.sync += p.valid.eq(0)
            with m.Else():
                with m.If(dut.put_back_en & dut.sleep & (p.qpn == slept)):
                    m.d.sync += p.awake.eq(0)
                with m.If(woken.valid & (p.qpn == woken.qpn)):
                    m.d.sync += p.awake.eq(1)
                with m.If(dut.put_back_en & (place == k)):
                    m.d.sync += [p.busy.eq(0), again[k].eq(1)]
                with m.If(picks & (best == k)):
                    m.d.sync += p.busy.eq(1)
                with m.If(dut.remove_en):
                    m.d.sync += p.before.eq(p.before & ~(1 << place))
        picked, expected, its = Signal(), Signal(range(PLACES)), Signal(NUMBER_BITS)
        m.d.sync += [picked.eq(picks), expected.eq(best), its.eq(places[best].number)]
        before = Cat(p.valid & (p.qpn == asked.qpn) & (~asked.queued | places[asked.place].before.bit_select(k, 1))
                     for k, p in enumerate(places))
        count, counting = Signal(range(PLACES + 1)), Signal()
        m.d.sync += [count.eq(sum(p.valid & (p.qpn == counted) for p in places)), counting.eq(dut.count_en)]

        self.check("the headers are in arrival order",
                   self._kept(places, place, new, asked, woken, shown))
        self.check("a new header gets a free entry", ~dut.insert_en | ~places[where].valid)
        self.check("the oldest ready header is picked", ~picked | (dut.picked_place == expected))
        self.check("the picked header is that of its entry", ~picked | (dut.picked.rsn == its))
        self.check("a header is offered if any header may be tried", dut.offered == Cat(may).any())
        older, used = self.inside("dut.older_ones.o", PLACES), self.inside("dut.used", range(PLACES + 1))
        remembered = Cat(older[k] == (before.bit_select(e.place, 1) & (k < used)) for k, e in enumerate(self._line()))
        self.check("the older headers of the QP are recorded", ~asked.valid | remembered.all())
        comes = dut.insert_en & ~asked.queued & (new == asked.qpn)
        goes = Cat(dut.remove_en & (place == k) for k in range(PLACES))
        self.check("an older header of the QP is known", ~asked.valid | (goes & asked.queued.replicate(PLACES)
                   & Cat(asked.place == k for k in range(PLACES))).any() | (
                       dut.older == ((before & ~goes).any() | comes)))
        self.check("exactly the QPs with waiting headers are marked",
                   dut.waiting[0] == Cat(p.valid & (p.qpn == waits) for p in places).any())
        self.check("the number of waiting headers of a QP is correct", ~counting | (dut.count == count))
        self.check("empty means no waiting header", dut.empty == ~valid.any())
        self.cover("all entries are in use, and again after a removal",
                   self.once(m, valid.all()) & self.once(m, dut.remove_en) & valid.all())
        self.cover("a header is picked though an older one waits", picked & Cat(
            p.valid & ~p.busy & places[expected].before.bit_select(k, 1) for k, p in enumerate(places)).any())
        self.cover("a header that was put back is picked again", picked & again.bit_select(expected, 1))

    def _line(self):
        """Return the entries of the queue."""
        entry = data.StructLayout({"qpn": 1, "awake": 1, "busy": 1, "place": range(PLACES)})
        return [self.inside(f"dut.line{k}", entry) for k in range(PLACES)]

    def _kept(self, places, place, new, asked, woken, shown):
        """Return the invariant of the storage: a line, oldest header first, then the free places; separate items."""
        line, used = self._line(), self.inside("dut.used", range(PLACES + 1))
        items = [self.inside(f"dut.items[{k}]", MatchItem) for k in range(PLACES)]
        there, ready, here, mates, roused = (self.inside(f"dut.{name}", PLACES) for name in (
            "there", "ready", "here", "item_same_qp.bits", "woken_ones.bits"))
        inside, groups = self.inside("dut.inside", PLACES), self.inside("dut.groups", PLACES // GROUP)
        sane = [used <= PLACES, self.inside("dut.place", range(PLACES)) == place,
                self.inside("dut.item_woken", 1) == (woken.valid & (woken.qpn == new)),
                ~asked.valid | (self.inside("dut.newer.o", 1) == (~asked.queued & (new == asked.qpn)))]
        for k, e in enumerate(line):
            p, taken = places[e.place], k < used
            at = Cat(f.place == place for f in line[:k + 1]).any()
            is_shown = Cat(f.place == shown.place for f in line[k - k % GROUP:k + 1]).any()
            sane += [~shown.valid | (self.inside("dut.shown_ones.o", PLACES)[k] == is_shown)]
            sane += [taken == p.valid, there[k] == taken, here[k] == (e.place == place),
                     ~places[place].valid | ((inside[k] | groups[k // GROUP]) == at),
                     mates[k] == (taken & (e.qpn == new)),
                     roused[k] == (taken & woken.valid & (e.qpn == woken.qpn)),
                     ready[k] == (taken & e.awake & ~e.busy),
                     ~taken | ((e.qpn == p.qpn) & (e.awake == p.awake) & (e.busy == p.busy))]
            for f in line[:k]:
                q = places[f.place]
                sane += [e.place != f.place, ~taken | (p.before.bit_select(f.place, 1)
                                                       & ~q.before.bit_select(e.place, 1)),
                         ~taken | (e.qpn != f.qpn) | (e.awake == f.awake)]
            sane += [~taken | ~p.before.bit_select(e.place, 1)]
        sane += [~p.valid | (item.rsn == p.number) for p, item in zip(places, items, strict=True)]
        return Cat(Value.cast(s).any() for s in sane).all()


SPECS = [WaitQueueSpec]
FAULTY = faulty(WaitQueueSpec, [
    ("the headers are in arrival order",
     "Mux(same_qp.bits.any(), same_qp_awake,", "Mux(same_qp.bits.any(), 1,"),
    ("a new header gets a free entry", "moved(places, place)", "moved(places, 0)"),
    ("the oldest ready header is picked",
     "zip(oldest.values, places, strict=True)", "zip(oldest.values, reversed(places), strict=True)"),
    ("the picked header is that of its entry", "write.addr.eq(free_place)", "write.addr.eq(used)"),
    ("a header is offered if any header may be tried", "& ~(self.put_back_en.replicate(n) & here)", "& ~here"),
    ("the older headers of the QP are recorded",
     "older_mask.passed.eq(shown.o)", "older_mask.passed.eq(shown.o[0].replicate(n))"),
    ("an older header of the QP is known", "bits[k] | (comes & last[k])", "bits[k]"),
    ("exactly the QPs with waiting headers are marked", "waits.present.eq(there)", "waits.present.eq(there & here)"),
    ("the number of waiting headers of a QP is correct", "counted = there & ", "counted = "),
    ("an older header of the QP is known", "newer.late_en.eq(self.query_en)", "newer.late_en.eq(0)"),
    ("empty means no waiting header", "self.empty.eq(~there[0])", "self.empty.eq(~oldest.any)"),
])
