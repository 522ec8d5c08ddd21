"""Completions from the UltraScale+ hard block (RC interface) with straddle: up to four begin in a beat."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data

from ..part.layouts import BEAT_BITS
from ..part.stages import ReadyRegister
from .rc import HEADER_DWORDS, TLPS, CompletionDescriptor, CompletionShim, CompletionUser, verdict
from .tlp import DWORD_BITS, LANES

SLOTS = TLPS                        # of a beat; completions begin at slots
SLOT_DWORDS = LANES // SLOTS
SLOT_BITS = SLOT_DWORDS * DWORD_BITS
WINDOW_SLOTS = 1 + SLOTS            # the first has three double words of descriptor, and one of payload


class NextBoundary(data.Struct):
    """Next boundaries from a slot of a beat on: the first end of a completion, and the first beginning after it."""

    ends: 1
    slot: range(SLOTS)
    lane: range(SLOT_DWORDS)        # of the slot: the last double word
    again: 1
    next: range(SLOTS)


class Row(data.Struct):
    """A beat of RC with its decoded sideband."""

    data: BEAT_BITS
    begins: 1                       # a completion begins; the first at slot `begin`
    begin: range(SLOTS)
    outlooks: data.ArrayLayout(NextBoundary, SLOTS)      # from each slot
    discontinue: 1


def read_sideband(m, user, row):
    """Decode the sideband ``user``, a :class:`CompletionUser`, into ``row``."""
    begins, ends, lanes = Signal(SLOTS), Signal(SLOTS), Signal(data.ArrayLayout(range(SLOT_DWORDS), SLOTS))
    m.d.comb += row.discontinue.eq(user.discontinue)
    for tlp in range(TLPS):
        end = user.eop_pointers[tlp]
        for slot in range(tlp, SLOTS):      # each of the earlier ones has a slot
            with m.If(user.is_sop[tlp] & (user.sop_pointers[tlp] == slot)):
                m.d.comb += begins[slot].eq(1)
            with m.If(user.is_eop[tlp] & (end[2:] == slot)):
                m.d.comb += [ends[slot].eq(1), lanes[slot].eq(end[:2])]
    for slot in reversed(range(SLOTS)):
        with m.If(begins[slot]):
            m.d.comb += [row.begins.eq(1), row.begin.eq(slot)]
    for start in range(SLOTS):
        outlook = row.outlooks[start]
        for slot in reversed(range(start, SLOTS)):
            with m.If(ends[slot]):
                m.d.comb += [outlook.ends.eq(1), outlook.slot.eq(slot), outlook.lane.eq(lanes[slot]),
                             outlook.again.eq(begins[slot + 1:].any())]
                for behind in reversed(range(slot + 1, SLOTS)):
                    with m.If(begins[behind]):
                        m.d.comb += outlook.next.eq(behind)


class StraddledCompletionShim(CompletionShim):
    """Splits beats of RC into completions, and gives the address of each of their double words.

    With straddle RC is one stream of completions, each of which begins at byte 0, 16, 32 or 48 of a beat, up to four
    in one (PG213, "Straddle Option for RC Interface"); ``tkeep`` and ``tlast`` are undefined. Gaps between completions
    may be anywhere.

    A completion leaves as beats of up to 16 double words of payload, the first of them in lane 0. A beat leaves in
    each cycle, so completions of up to 64 bytes one per cycle: more than the 0.8 that fit a beat of RC when they have
    64 bytes, and than the 0.75 per cycle of a link of Gen3 x16. RC is stalled only while a beat with the
    beginnings of several completions is split, a cycle for each further one. A completion takes three cycles from
    the beat with its end, two if it began in an earlier one, and longer only after others. Completions without an
    outstanding request are dropped.

    ``discontinue`` does not identify a completion: all that end in its beat have an error. The hard block
    begins no other in a beat with it.

    State: two beats, ``older`` and ``newer``, and the slot of the older one at which the next beat of payload
    begins, a window of five slots. A completion continues in the last of them, which is then the first of its next
    window.

    Members
    -------
    s_axis_rc, o
        See :class:`~weft.hdl.pcie.rc.CompletionShim`.
    """

    def elaborate(self, platform):
        m = Module()
        rc = self.s_axis_rc
        m.submodules.rows = rows = ReadyRegister(Row)
        older, newer, newer_valid = Signal(Row), Signal(Row), Signal()
        m.d.comb += [rows.i.valid.eq(rc.tvalid), rc.tready.eq(rows.i.ready), rows.i.p.data.eq(rc.tdata)]
        read_sideband(m, CompletionUser(rc.tuser), rows.i.p)

        # The window: `here` if there is one, its position, and `inside` if its completion began before it.
        here, at, inside = Signal(), Signal(range(SLOTS)), Signal()
        near, far = older.outlooks[at], newer.outlooks[0]
        within, reached, last, leaves, advance = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            within.eq(near.ends),
            reached.eq(far.ends & ((far.slot < at) | ((far.slot == at) & (far.lane != SLOT_DWORDS - 1)))),
            last.eq(within | reached),
            leaves.eq(here & (within | newer_valid)),
            advance.eq(~here | (leaves & ~(within & near.again))),
            rows.o.ready.eq(~newer_valid | advance),
        ]
        with m.If(rows.o.ready):
            m.d.sync += [newer.eq(rows.o.payload), newer_valid.eq(rows.o.valid)]
        with m.If(advance):
            m.d.sync += older.eq(newer)
        with m.If(leaves & ~last):
            m.d.sync += inside.eq(1)
        with m.Elif(leaves & within & near.again):
            m.d.sync += [at.eq(near.next), inside.eq(0)]
        with m.Elif(leaves & ~within):
            m.d.sync += [here.eq(far.again), at.eq(far.next), inside.eq(0)]
        with m.Elif(advance):
            m.d.sync += [here.eq(newer_valid & newer.begins), at.eq(newer.begin), inside.eq(0)]

        place = SimpleNamespace(at=at, inside=inside, within=within, last=last, leaves=leaves)
        self._send(m, older, newer, place)
        return m

    def _send(self, m, older, newer, place):
        """Build the output: the window as a beat of its completion."""
        at, inside, within, last, leaves = place.at, place.inside, place.within, place.last, place.leaves
        window, slots = Signal(WINDOW_SLOTS * SLOT_BITS), Cat(older.data, newer.data)
        with m.Switch(at):
            for slot in range(SLOTS):
                with m.Case(slot):
                    m.d.comb += window.eq(slots[slot * SLOT_BITS:])
        head = CompletionDescriptor(window[:HEADER_DWORDS * DWORD_BITS])
        near, far = older.outlooks[at], newer.outlooks[0]
        end = Signal(range(WINDOW_SLOTS * SLOT_DWORDS))         # the last double word of the window, if it is the last
        bad, stray, ends = Signal(), Signal(), Signal()
        bad_q, stray_q, ends_q = Signal(), Signal(), Signal()
        m.d.comb += end.eq(Mux(
            within, Cat(near.lane, (near.slot - at)[:2]), Cat(far.lane, (far.slot - at + SLOTS)[:3])))
        with m.If(inside):
            m.d.comb += [bad.eq(bad_q), stray.eq(stray_q), ends.eq(ends_q)]
        with m.Else():
            m.d.comb += [field.eq(value) for field, value in zip((bad, stray, ends), verdict(head), strict=True)]
        beat = self.o.p
        m.d.sync += self.o.valid.eq(leaves & ~stray)
        with m.If(leaves):
            m.d.sync += [
                bad_q.eq(bad), stray_q.eq(stray), ends_q.eq(ends),
                beat.data.eq(window[HEADER_DWORDS * DWORD_BITS:]),
                beat.lanes.eq(Mux(bad, 0, Cat(~last | (lane + HEADER_DWORDS <= end) for lane in range(LANES)))),
                beat.dword.eq(Mux(inside, beat.dword + LANES, head.lower_address[2:])),
                beat.last.eq(last),
                beat.done.eq(last & ends),
                beat.error.eq(bad | (last & Mux(within, older.discontinue, newer.discontinue))),
            ]
            with m.If(~inside):
                m.d.sync += beat.tag.eq(head.tag)
