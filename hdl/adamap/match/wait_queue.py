"""Match queue: retransmission headers that wait for a node of their QP."""

from functools import partial
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...contract.params import CardParams
from ...part.logic import adder_tree, group_counts, one_hot_mux, reduce_tree
from ...part.select import LateMux, TagCompare
from ...part.ticket import EXTENDED_TICKET_WIDTH


def group_of(width):
    """Return the size of a group of bits: the inputs of a LUT, if that makes two groups."""
    return min(4, max(width // 2, 1))


def in_groups(bits):
    """Return the prefix OR of the bits within each group."""
    bits = Cat(bits)
    return Cat(bits[k - k % group_of(len(bits)):k + 1].any() for k in range(len(bits)))


def before_groups(bits):
    """Return, for each group, whether a bit before it is set."""
    bits = Cat(bits)
    return Cat(bits[:start].any() for start in range(0, len(bits), group_of(len(bits))))


def moved_up(gone, values, end=0):
    """Return the values after the entries that are ``gone``, all from one on, are replaced by their successors."""
    return [Mux(gone[k], after, value) for k, (value, after) in enumerate(zip(values, [*values[1:], end], strict=True))]


def spread(groups, width):
    """Replicate a bit of each group for all bits of the group."""
    return Cat(bit.replicate(group_of(width)) for bit in groups)


class OlderMask(wiring.Component):
    """Mask of the headers of a queue that are older than one of them. Combinational.

    Parameters
    ----------
    width : int

    Members
    -------
    same_qp, passed : In(width)
        The headers of its QP; the header itself, if it is queued, and those after it in its group.
    queued : In(1)
        Otherwise all are older.
    o : Out(width)
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"same_qp": In(width), "passed": In(width), "queued": In(1), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        group = group_of(self.width)
        ends = self.passed[group - 1::group]    # of the group that contains it
        so_far = Cat(self.passed[k] | ends[:k // group].any() for k in range(self.width))
        m.d.comb += self.o.eq(self.same_qp & ~(so_far & self.queued.replicate(self.width)))
        return m


class OlderPending(wiring.Component):
    """Returns whether an older header remains in the queue after this cycle. Combinational.

    Kept as a block: folded into :class:`WaitQueue`, the estimated path of the matcher becomes 2.94 instead of 2.74 ns.

    Parameters
    ----------
    width : int

    Members
    -------
    i : In(width)
        The headers that are older, in the order of the queue.
    remove_en, here : In(1), In(width)
        The one that leaves.
    coming : In(1)
        One more comes.
    o : Out(1)
    """

    def __init__(self, width):
        super().__init__({"i": In(width), "remove_en": In(1), "here": In(width), "coming": In(1), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(Mux(self.remove_en, (self.i & ~self.here).any(), self.i.any()) | self.coming)
        return m


class QpMatch(wiring.Component):
    """QP compare of the headers of a queue. Latency 1: the result is for the queue in the next cycle.

    Parameters
    ----------
    width, places : int

    Members
    -------
    en, qpn : In(1), In(width)
        The QP to look up.
    present, numbers : In(places), In(width).array(places)
        Valid entries, and their QPs.
    gone : In(places)
        All entries from there on move up by one.
    joins, joined : In(places), In(width)
        A header of QP ``joined`` enters at ``joins``; never while one is gone.
    bits : Out(places)
    """

    def __init__(self, width, places):
        self.places = places
        super().__init__({
            "en": In(1), "qpn": In(width), "present": In(places), "numbers": In(width).array(places),
            "gone": In(places), "joins": In(places), "joined": In(width), "bits": Out(places)})

    def elaborate(self, platform):
        m = Module()
        its = self.present & Cat(self.en & (number == self.qpn) for number in self.numbers)
        new = self.en & (self.joined == self.qpn)
        m.d.sync += self.bits.eq(Cat(moved_up(self.gone, its)) | (self.joins & new.replicate(self.places)))
        return m


class OldestSelect(wiring.Component):
    """Lowest set bit and its value. Combinational.

    Groups of bits are decided in parallel, then the first group is taken.

    Parameters
    ----------
    width, places : int
        Bits of a value; number of values.

    Members
    -------
    i, values : In(places), In(width).array(places)
    any : Out(1)
    picks : Out(places)
        One-hot, if any.
    value : Out(width)
    """

    def __init__(self, width, places):
        self.width, self.places = width, places
        super().__init__({"i": In(places), "values": In(width).array(places),
                          "any": Out(1), "picks": Out(places), "value": Out(width)})

    def elaborate(self, platform):
        m = Module()
        size = group_of(self.places)
        starts = range(0, self.places, size)
        some, first, lowest = Signal(len(starts)), Signal(len(starts)), Signal(self.places)
        values = [Signal(self.width, name=f"value{g}") for g in range(len(starts))]
        for g, (start, value) in enumerate(zip(starts, values, strict=True)):
            group = slice(start, start + size)
            m.d.comb += [
                some[g].eq(self.i[group].any()), first[g].eq(some[g] & ~some[:g].any()),
                lowest[group].eq(Cat(bit & ~self.i[start:start + k].any() for k, bit in enumerate(self.i[group]))),
                value.eq(one_hot_mux(lowest[group], list(self.values)[group])),
            ]
        m.d.comb += [
            self.any.eq(reduce_tree(some, or_)), self.value.eq(one_hot_mux(first, values)),
            self.picks.eq(lowest & spread(first, self.places)),
        ]
        return m


class MatchItem(data.Struct):
    """A MatchRequest with an extended ticket, so that it may wait for long."""

    qpn: 24
    generation: 8
    psn: 32
    rsn: 24
    probe: 1
    ticket: EXTENDED_TICKET_WIDTH


class WaitQueue(wiring.Component):
    """Waiting headers in arrival order; those of a woken QP are offered again.

    All waiting headers of a QP are awake or asleep together. A picked header keeps its entry until it is
    removed or put back. At most one of ``insert_en``, ``remove_en``, ``put_back_en`` per cycle.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    insert_en, insert_awake, item : In
        A new header at the end. It is awake if ``insert_awake``, or like the others of its QP if there are any.
    place_next, qpn_next : In
        Entry of the header match attempt ends in the next cycle, if one does; the QP of ``item`` in that cycle.
    remove_en, put_back_en, sleep : In
        End of an attempt: the header leaves, or stays; with ``sleep`` all headers of the QP of ``item`` fall asleep.
    wake_stb, wake_qpn : In
        Something changed for a QP: its headers are awake, from the cycle after the next one on.
    offered : Out(1)
        An awake header exists.
    pick_en : In(1)
        Pick the oldest, if one is offered; ``picked`` and ``picked_place`` come a cycle later.
    picked, picked_place : Out
    show_en, show_place : In
        Entry of the header that may be looked up from the next cycle on, if it is queued; held until then.
    query_en, query_qpn, query_queued : In
        The header that ``older`` is about, from the next cycle on.
    older : Out(1)
        An older header of its QP (any header of its QP, if it is not queued) remains after this cycle.
    waiting_qpn : In(24).array(2)
    waiting : Out(2)
        A header of each of these QPs waits.
    count_en, count_qpn, count : In, In, Out
        Number of waiting headers of that QP, a cycle later.
    empty : Out(1)
    """

    def __init__(self, params: CardParams):
        self.params = params
        place = range(params.match_queue)
        super().__init__({
            "insert_en": In(1), "insert_awake": In(1), "item": In(MatchItem),
            "place_next": In(place), "qpn_next": In(24), "remove_en": In(1), "put_back_en": In(1), "sleep": In(1),
            "wake_stb": In(1), "wake_qpn": In(24),
            "offered": Out(1), "pick_en": In(1), "picked": Out(MatchItem), "picked_place": Out(place),
            "show_en": In(1), "show_place": In(place),
            "query_en": In(1), "query_qpn": In(24), "query_queued": In(1), "older": Out(1),
            "waiting_qpn": In(24).array(2), "waiting": Out(2),
            "count_en": In(1), "count_qpn": In(params.qpn_width), "count": Out(range(params.match_queue + 1)),
            "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        n, width = self.params.match_queue, self.params.qpn_width
        entry = data.StructLayout({"qpn": width, "awake": 1, "busy": 1, "place": range(n)})
        # In arrival order; free entries follow the first `used` ones, those of `there`.
        line = [Signal(entry, name=f"line{k}", init={"place": k}) for k in range(n)]
        used = Signal(range(n + 1))
        m.submodules.items = items = Memory(shape=MatchItem, depth=n, init=[])
        write, read = items.write_port(), items.read_port(domain="comb")

        free_place, there = Signal(range(n), name="free_place"), Signal(n, name="there")
        # Position of that entry in the order; `inside`: that and later ones in its group, `groups`: later groups. These
        # move together.
        place, here = Signal(range(n), name="place"), Signal(n, name="here", init=1)
        size = group_of(n)
        inside, groups = Signal(n, name="inside", init=(1 << size) - 1), Signal(n // size, init=(1 << n // size) - 2)
        gone, last, joins, then = (Signal(n, name=name) for name in ("gone", "last", "joins", "then"))
        for k, qpn in enumerate(self.waiting_qpn):
            m.submodules[f"waiting{k}"] = waits = TagCompare(width, n)
            m.d.comb += [waits.i.eq(qpn), waits.present.eq(there), self.waiting[k].eq(waits.any),
                         *[number.eq(e.qpn) for number, e in zip(waits.numbers, line, strict=True)]]
        m.submodules.item_same_qp, m.submodules.woken_ones = same_qp, woken = QpMatch(width, n), QpMatch(width, n)
        for match, en, qpn in ((same_qp, 1, self.qpn_next), (woken, self.wake_stb, self.wake_qpn)):
            m.d.comb += [
                match.en.eq(en), match.qpn.eq(qpn), match.present.eq(there), match.gone.eq(gone),
                match.joins.eq(joins), match.joined.eq(self.item.qpn),
                *[number.eq(e.qpn) for number, e in zip(match.numbers, line, strict=True)],
            ]
        item_woken = Signal()
        m.d.sync += item_woken.eq(self.wake_stb & (self.wake_qpn[:width] == self.qpn_next[:width]))
        m.d.comb += [
            last.eq(~there & Cat(Const(1, 1), there[:-1])),      # where the next header enters
            joins.eq(last & self.insert_en.replicate(n)),
            gone.eq((inside | spread(groups, n)) & self.remove_en.replicate(n)),
        ]
        places = [e.place for e in line]
        self._query(m, line, last, there, gone, here)
        *comes, last_comes = (its == self.place_next for its in (*places, place))
        m.d.comb += then.eq(Cat(moved_up(gone, comes, last_comes)))
        m.d.sync += [
            place.eq(self.place_next), here.eq(then), inside.eq(in_groups(then)),
            groups.eq(before_groups(then)),
        ]
        m.submodules.oldest = oldest = OldestSelect(len(place), n)
        m.d.comb += [
            free_place.eq(one_hot_mux(last, places)),        # no two elements have the same entry
            *[value.eq(its) for value, its in zip(oldest.values, places, strict=True)],
        ]

        # State after this cycle, except a header that joins: there is none while one leaves.
        moved = partial(moved_up, gone)
        # All same_qp are awake or none is.
        same_qp_awake = (same_qp.bits & Cat(e.awake for e in line)).any()
        joins_awake, awake, busy, may, ready = Signal(), Signal(n), Signal(n), Signal(n), Signal(n, name="ready")
        m.d.comb += [
            joins_awake.eq(Mux(same_qp.bits.any(), same_qp_awake, self.insert_awake) | item_woken),
            awake.eq(woken.bits | (Cat(e.awake for e in line)
                                   & ~((self.put_back_en & self.sleep).replicate(n) & same_qp.bits))),
            busy.eq(Cat(e.busy for e in line) & ~(self.put_back_en.replicate(n) & here)),
            # Headers that may be tried, except the one that is picked.
            may.eq(Cat(moved(there & awake & ~busy)) | (joins & joins_awake.replicate(n))), oldest.i.eq(ready),
        ]
        picks = Cat(moved(oldest.picks)) & self.pick_en.replicate(n)
        m.d.sync += [
            there.eq(Mux(self.remove_en, there >> 1, there | joins)), ready.eq(may & ~picks),
            used.eq(used + self.insert_en - self.remove_en),
        ]
        for k, (e, qpn, is_awake, is_busy, lies) in enumerate(zip(
                line, moved([e.qpn for e in line]), moved(awake), moved(busy), moved(places, place), strict=True)):
            m.d.sync += [e.place.eq(lies), e.qpn.eq(Mux(joins[k], self.item.qpn, qpn)),
                         e.awake.eq(Mux(joins[k], joins_awake, is_awake)), e.busy.eq(is_busy & ~joins[k] | picks[k])]
        with m.If(self.pick_en):
            m.d.sync += self.picked_place.eq(oldest.value)
        counted = there & Cat(e.qpn == self.count_qpn for e in line)
        with m.If(self.count_en):
            counts = group_counts(m, counted, size, "counted")
        m.d.comb += [
            self.count.eq(adder_tree(counts)), self.offered.eq(oldest.any), self.empty.eq(~there[0]),
            write.en.eq(self.insert_en), write.addr.eq(free_place), write.data.eq(self.item),
            read.addr.eq(self.picked_place), self.picked.eq(read.data),
        ]
        return m

    def _query(self, m, line, last, there, gone, here):
        """Keep a bit for each header that is older than the looked-up one, while headers come and go."""
        n, width = len(line), self.params.qpn_width
        m.submodules.queried_same_qp = same_qp = TagCompare(width, n)
        m.submodules.older_mask = older_mask = OlderMask(n)
        m.submodules.older_ones = older = LateMux(n)
        m.submodules.shown_ones = shown = LateMux(n)
        coming = Signal(2)
        m.submodules.newer = newer = LateMux(1)      # `item` is of the QP of the looked-up header
        queried_qpn, queried_queued = Signal(width), Signal()
        m.submodules.answer = answer = OlderPending(n)
        m.d.comb += [
            same_qp.i.eq(self.query_qpn), same_qp.present.eq(there),
            *[number.eq(e.qpn) for number, e in zip(same_qp.numbers, line, strict=True)],
            older_mask.passed.eq(shown.o), older_mask.same_qp.eq(same_qp.bits), older_mask.queued.eq(self.query_queued),
            newer.late_en.eq(self.query_en), newer.early_en.eq(1),
            *[value.eq(~queued & (self.qpn_next[:width] == qpn[:width])) for value, qpn, queued in (
                (newer.early, queried_qpn, queried_queued), (newer.late, self.query_qpn, self.query_queued))],
            coming.eq(self.insert_en.replicate(2) & Cat(
                newer.o, ~self.query_queued & (self.item.qpn[:width] == self.query_qpn[:width]))),
            answer.i.eq(older.o), answer.remove_en.eq(self.remove_en), answer.here.eq(here),
            answer.coming.eq(coming[0]), self.older.eq(answer.o),
        ]
        with m.If(self.query_en):
            m.d.sync += [queried_qpn.eq(self.query_qpn), queried_queued.eq(self.query_queued)]

        its = [e.place == self.show_place for e in line]
        same = [bit & ~shown.o[k - 1] if k % group_of(n) else bit for k, bit in enumerate(shown.o)]
        m.d.comb += [
            shown.late_en.eq(self.show_en), shown.early_en.eq(1),
            *[value.eq(in_groups(moved_up(gone, bits)))
              for value, bits in ((shown.late, its), (shown.early, same))],
        ]

        def moved(bits, comes):
            """Return bits of the headers after this cycle."""
            return Cat(Mux(gone[k], bits[k + 1] if k + 1 < n else 0, bits[k] | (comes & last[k])) for k in range(n))

        m.d.comb += [older.late_en.eq(self.query_en), older.late.eq(moved(older_mask.o, coming[1])),
                     older.early_en.eq(1), older.early.eq(moved(older.o, coming[0]))]
