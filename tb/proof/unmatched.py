"""What is proven of the lists whose headers go to the driver: no header of them is forgotten by its list's order."""

from amaranth.hdl import Cat, Mux, Signal

from weft.hdl.adamap.unmatched import SLACK_MAX, Unmatched, passed
from weft.hdl.params import preset
from weft.tb.proof.broken import Broken
from weft.tb.proof.specification import Spec

LISTS = 2
PARAMS = preset("test").with_(unmatched_lists=LISTS)


class UnmatchedSpec(Spec):
    """One list is followed, whichever it is, while headers and probes of any list come, and orders are taken.

    A header comes at most as long as an order may stay: RSNs of it lie within 2^23 of each other. The order owes the
    newest RSN passed over, and the ticket of the last packet. The checks are proven together: one of them says what the
    places hold.
    """

    name = "unmatched"
    block = Unmatched

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
        m.d.comb += ahead.eq(end - newest)
        kept = owed & ~(mine & dut.taken)
        roomy = Signal()        # the list has an order, or there is a place for one
        m.d.comb += roomy.eq(dut.known | ~dut.full)
        with m.If(dut.i_stb & own & roomy & (dut.i.probe | (slack < SLACK_MAX))):
            m.d.sync += [owed.eq(1), ticket.eq(dut.i.ticket)]
            with m.If(~owed | ~ahead[-1]):
                m.d.sync += newest.eq(end)
        with m.Elif(~kept):
            m.d.sync += owed.eq(0)

        together = {"kind": "induction", "seconds": 100}
        unseen = Signal(3)      # cycles in which nothing waits and another is shown
        self.check("what is owed lies in one place", self._held(qpn, generation, owed, newest, ticket, unseen),
                   **together)
        self.check("how far a header passes over is kept", (self.inside("dut.far", 1) == (slack >= SLACK_MAX)) & (
            self.inside("dut.beyond", 24) == (1 - Mux(slack == 1, 0, slack))[:24]), **together)
        self.check("a list with an order is known, no other", ~own | (dut.known == owed), **together)
        self.check("an order is owed", ~mine | owed, **together)
        self.check("an order goes as far as the newest header", ~mine | (dut.o.rsn == newest), **together)
        self.check("an order waits for the last packet", ~mine | (dut.o.ticket == ticket), **together)
        self.check("an order waits for the headers of its list", ~dut.due | ~dut.waiting, **together)
        self.check("empty means nothing is owed", ~dut.empty | ~owed, **together)
        with m.If(~owed | mine | (dut.due & ~dut.taken) | dut.waiting):
            m.d.sync += unseen.eq(0)
        with m.Else():
            m.d.sync += unseen.eq(unseen + (unseen != 7))
        self.check("an order comes round", unseen < 4, **together)

        replaced, was_full = Signal(), Signal()
        with m.If(dut.i_stb & own & owed & ~dut.i.probe & ~ahead[-1] & (ahead != 0)):
            m.d.sync += replaced.eq(1)
        with m.If(dut.full):
            m.d.sync += was_full.eq(1)
        self.cover("a later header replaces an order", replaced & mine & dut.taken)
        self.cover("all places are taken, then none is", was_full & dut.empty)
        self.cover("a header comes in the cycle in which its order is taken", mine & dut.taken & dut.i_stb & own)

    def _held(self, qpn, generation, owed, newest, ticket, unseen):
        """Whether the list has a place if something is owed, and that holds it; the place is shown in its turn."""
        places = [self.inside(f"dut.passed{k}", passed(PARAMS)) for k in range(LISTS)]
        shown, asked = self.inside("dut.shown", LISTS), self.inside("dut.asked", 1)
        own = Cat(p.valid & (p.qpn == qpn) & (p.generation == generation) for p in places)
        return Cat(
            owed == own.any(), ~own.all(), (shown == 1) | (shown == 2),
            Mux(own == shown, unseen <= 2 + asked, unseen <= asked),
            *(~mine | ((p.rsn == newest) & (p.ticket == ticket)) for mine, p in zip(own, places, strict=True))).all()


SPECS = [UnmatchedSpec]
BROKEN = [
    Broken(UnmatchedSpec, "what is owed lies in one place",
           ("(own[k] | (~self.known & free[k]))", "(own[k] | free[k])")),
    Broken(UnmatchedSpec, "how far a header passes over is kept",
           ("far.eq(self.slack >= SLACK_MAX)", "far.eq(self.slack > SLACK_MAX)")),
    Broken(UnmatchedSpec, "a list with an order is known, no other",
           ("self.known.eq(owing.any)", "self.known.eq(own.all())")),
    Broken(UnmatchedSpec, "an order is owed",
           ("m.If(shown[k] & self.taken):", "m.If(shown[k] & self.taken & ~self.i_stb):")),
    Broken(UnmatchedSpec, "an order goes as far as the newest header",
           ("(comes & own[k] & ~ahead[-1])", "(comes & own[k] & 0)")),
    Broken(UnmatchedSpec, "an order goes as far as the newest header",
           ("(own[k] | (~self.known & free[k]))", "(own[k] | free[k])")),
    Broken(UnmatchedSpec, "an order waits for the last packet",
           ("entry.ticket.eq(self.i.ticket)",
            "entry.ticket.eq(Mux(own[k], entry.ticket, self.i.ticket))")),
    Broken(UnmatchedSpec, "an order waits for the headers of its list",
           ("order.valid & ~self.waiting &", "order.valid &")),
    Broken(UnmatchedSpec, "empty means nothing is owed", ("self.empty.eq(~valid.any())", "self.empty.eq(~self.due)")),
    Broken(UnmatchedSpec, "an order comes round",
           ("m.If(asked & (~self.due | self.taken)):", "m.If(asked & self.taken):")),
]
