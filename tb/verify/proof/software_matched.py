"""Proof of the lists whose headers go to the driver: the order of a list includes all of its headers."""

from amaranth.hdl import Cat, Mux, Signal

from weft.hdl.adamap.match.match_entry import SLACK_MAX, SoftwareMatched, passed
from weft.hdl.adamap.match.wait_queue import MatchItem
from weft.hdl.contract.params import preset
from weft.tb.verify.proof.faulty import faulty
from weft.tb.verify.proof.specification import Spec

LISTS = 2
PARAMS = preset("test").with_(unmatched_lists=LISTS)


class SoftwareMatchedSpec(Spec):
    """One list is followed, chosen arbitrarily, while headers and probes of any list arrive and orders are taken.

    Headers arrive within the time that an order may stay: their RSNs are within 2^23 of each other. The order must hold
    the newest RSN passed over, and the ticket of the last packet. The checks are proven together: one of them describes
    the entries.
    """

    name = "unmatched"
    block = SoftwareMatched
    proof = {"kind": "induction", "seconds": 100}

    def specify(self, m):
        m.submodules.dut = dut = self.block(PARAMS)
        self.free_members(dut)
        qpn, generation = self.constant(m, 24, "some_qpn"), self.constant(m, 8, "some_generation")
        own, mine = Signal(), Signal()
        m.d.comb += [
            own.eq((dut.i.qpn == qpn) & (dut.i.generation == generation)),
            mine.eq(dut.due & (dut.o.qpn == qpn) & (dut.o.generation == generation)),
        ]
        self.assume(~dut.taken | dut.due)
        self.assume(dut.i.qpn < PARAMS.qps)
        end, ahead, slack = Signal(24), Signal(24), Signal(24)
        m.d.sync += slack.eq(dut.slack)
        with m.If(dut.i.probe):
            m.d.comb += end.eq(dut.i.rsn)
        with m.Else():
            m.d.comb += end.eq(dut.i.rsn + 1 - Mux(slack == 1, 0, slack))
        owed, newest, ticket = Signal(), Signal(24), Signal.like(dut.i.ticket)
        kept = owed & ~(mine & dut.taken)
        # A header is written one cycle later. `not_full`: its list has an order, or there is an entry for one.
        comes, coming, reach, known, not_full = Signal(), Signal.like(dut.i), Signal(24), Signal(), Signal()
        m.d.comb += [ahead.eq(reach - newest), not_full.eq(dut.known | ~dut.full)]
        m.d.sync += [comes.eq(dut.i_stb & own & not_full & (dut.i.probe | (slack < SLACK_MAX))), coming.eq(dut.i),
                     reach.eq(end), known.eq(owed | comes)]
        with m.If(comes):
            m.d.sync += [owed.eq(1), ticket.eq(coming.ticket)]
            with m.If(~known | ~ahead[-1]):     # known, even if its order was just taken
                m.d.sync += newest.eq(reach)
        with m.Elif(~kept):
            m.d.sync += owed.eq(0)

        # Cycles in which no header waits and another order is shown.
        unseen = self.cycles(m, owed & ~mine & ~(dut.due & ~dut.taken) & ~dut.waiting, 7)
        self.check("a due header is in exactly one entry", self._held(qpn, generation, owed, newest, ticket, unseen))
        self.check("the header is written to the entry of its list or a free one",
                   self._written(qpn, generation, owed, newest, comes, coming, reach, known))
        self.check("the pass-over limit of a header is kept", (self.inside("dut.far", 1) == (slack >= SLACK_MAX)) & (
            self.inside("dut.beyond", 24) == (1 - Mux(slack == 1, 0, slack))[:24]))
        self.check("exactly the lists with an order are known", ~own | (dut.known == (owed | comes)))
        self.check("an order is due", ~mine | owed)
        self.check("an order extends to the newest header", ~mine | (dut.o.rsn == newest))
        self.check("an order waits for the last packet", ~mine | (dut.o.ticket == ticket))
        self.check("an order waits for the headers of its list", ~dut.due | ~dut.waiting)
        self.check("empty means nothing is due", ~dut.empty | ~(owed | comes))
        self.check("an order is offered after a bounded number of others", unseen < 6)

        replaced = self.once(m, comes & owed & ~coming.probe & ~ahead[-1] & (ahead != 0))
        self.cover("a later header replaces an order", replaced & mine & dut.taken)
        self.cover("all entries are in use, then none", self.once(m, dut.full) & dut.empty)
        self.cover("a header comes in the cycle in which its order is taken", mine & dut.taken & dut.i_stb & own)
        self.cover("an order is taken while a header is written into it", mine & dut.taken & comes)

    def _held(self, qpn, generation, owed, newest, ticket, unseen):
        """Return the invariant: the list has one entry if an order is owed, with its contents; it is shown in turn."""
        places = [self.inside(f"dut.passed{k}", passed(PARAMS)) for k in range(LISTS)]
        shown, asking, asked = (self.inside(f"dut.{name}", bits) for name, bits in (
            ("shown", LISTS), ("looking", 1), ("looked_up", 1)))
        own = Cat(p.valid & (p.qpn == qpn) & (p.generation == generation) for p in places)
        return Cat(
            owed == own.any(), ~own.all(), (shown == 1) | (shown == 2),
            Mux(own == shown, unseen <= 3 + asking + asked, unseen <= asking + asked), ~asked | asking,
            ~asking | (shown & Cat(p.valid for p in places)).any(),
            *(~mine | ((p.rsn == newest) & (p.ticket == ticket)) for mine, p in zip(own, places, strict=True))).all()

    def _written(self, qpn, generation, owed, newest, comes, coming, reach, known):
        """Return the invariant: the header of the last cycle is written, and overwrites no order of another list."""
        places = [self.inside(f"dut.passed{k}", passed(PARAMS)) for k in range(LISTS)]
        came, place = self.inside("dut.came", 1), self.inside("dut.place", LISTS)
        own, free = self.inside("dut.own", LISTS), self.inside("dut.free", LISTS)
        of = self.inside("dut.coming", MatchItem)
        mine = (of.qpn == qpn) & (of.generation == generation)
        held = Cat(p.valid & (p.qpn == qpn) & (p.generation == generation) for p in places)
        valid = Cat(p.valid for p in places)
        return Cat(
            ~(comes & own.all()), ~free.all(), ~(free & valid).any(), comes == (came & mine & place.any()),
            of.qpn < PARAMS.qps,
            ~comes | ((of.as_value() == coming.as_value()) & (self.inside("dut.end", 24) == reach)),
            ~comes | (own.any() == known),
            Mux(comes & owed, place == held, ~(place & held).any()), ~comes | owed | ~(place & valid).any(),
            *(~comes | ~known | ~at | (p.rsn == newest) for at, p in zip(place, places, strict=True))).all()


SPECS = [SoftwareMatchedSpec]
FAULTY = faulty(SoftwareMatchedSpec, [
    ("a due header is in exactly one entry", "same.eq(came &", "same.eq(0 &"),
    ("the header is written to the entry of its list or a free one",
     "own.eq(owing.bits | Mux(same, place, 0))", "own.eq(owing.bits)"),
    ("the header is written to the entry of its list or a free one",
     "free.eq(~held & (held + 1))", "free.eq(~valid & (valid + 1))"),
    ("the pass-over limit of a header is kept", "far.eq(self.slack >= SLACK_MAX)", "far.eq(self.slack > SLACK_MAX)"),
    ("exactly the lists with an order are known", "self.known.eq(owing.any | same)", "self.known.eq(owing.any)"),
    ("an order is due", "m.If(shown[k] & self.taken):", "m.If(shown[k] & self.taken & ~self.i_stb):"),
    ("an order extends to the newest header", "place[k] & (~known | ~ahead[-1])", "place[k] & ~known"),
    ("an order extends to the newest header", "place[k] & (~known | ~ahead[-1])", "place[k]"),
    ("an order waits for the last packet",
     "entry.ticket.eq(coming.ticket)", "entry.ticket.eq(Mux(known, entry.ticket, coming.ticket))"),
    ("an order waits for the headers of its list", "order.valid & ~self.waiting &", "order.valid &"),
    ("empty means nothing is due", "self.empty.eq(~valid.any() & ~came)", "self.empty.eq(~valid.any())"),
    ("an order is offered after a bounded number of others", "shown.eq(shown.rotate_left(1))", "shown.eq(shown)"),
])
