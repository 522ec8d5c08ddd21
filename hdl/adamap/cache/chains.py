"""State and order of the entries of the head cache, and all of it that is in memories."""

from amaranth.hdl import Array, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ...part.logic import (
    adder_tree,
    encode_one_hot,
    group_counts,
    lowest_one_hot,
    one_hot,
    priority_encode,
    read_word,
    sum_equals,
    thermometer,
)
from ...part.select import AnyBit, OneHotBit, OneHotEncoder
from .cached import (
    COUNT_WIDTH,
    ENCODING_WIDTH,
    NODE_BASE,
    Pending,
    cached_record,
    fill_port,
    index_width,
    match_port,
    retire_port,
    tag_match_layout,
)


class EntryState(wiring.Component):
    """State bits of each entry. Latency 1.

    Kept as a block: the enables are late, and per-module mapping would trade depth for area (docs/development.md, "Size
    and longest paths"; the head cache as one module is 7 % smaller and 0.30 ns faster). All vectors that name an entry
    have at most one bit set.

    Parameters
    ----------
    width : int

    Members
    -------
    head_en, heads, after_head, head_last : In
        ``heads`` leaves, and ``after_head`` becomes the first node of that list; ``head_last``: it is the entry that
        ``filled`` would follow.
    ripe_en, ripe, after_ripe, ripe_last : In
        The same for a ripe head.
    flush_en, flushed : In
        All these leave.
    release_en, released, before : In
        This one leaves, or was only reserved; ``before`` has no successor any more.
    fill_en, filled, begins, last, behind_head : In
        This one becomes valid; it is the first of its list, or follows ``last``, which is a head (``behind_head``),
        unless that leaves.
    seconds : In
        This one follows the ``promoted`` one.
    reserve_en, free : In
        This one is reserved.
    ends : In
        This one is the last of the list that was selected.
    at_end : Out(width)
        The same a cycle later, unless it left.
    valid, head, linked, reserved : Out(width)
        It holds a node; the first one of a list; one with a cached successor (valid for nodes only); it is reserved for
        one.
    second, promoted : Out(width)
        It follows the first node of a list, except a promoted one; it has become the first one in this cycle.
    """

    def __init__(self, width):
        self.width = width
        super().__init__({
            **dict.fromkeys(("heads", "after_head", "ripe", "after_ripe", "flushed", "released", "before", "filled",
                             "last", "seconds", "free", "ends"), In(width)),
            **dict.fromkeys(("head_en", "head_last", "ripe_en", "ripe_last", "flush_en", "release_en", "fill_en",
                             "begins", "behind_head", "reserve_en"), In(1)),
            **dict.fromkeys(("valid", "head", "linked", "reserved", "second", "promoted", "at_end"), Out(width)),
        })

    def elaborate(self, platform):
        m = Module()

        def of(bit, entries):
            return entries & bit.replicate(self.width)

        comes, goes = of(self.fill_en, self.filled), of(self.release_en, self.released)
        stays = ~(of(self.head_en, self.heads) | of(self.ripe_en, self.ripe) | of(self.flush_en, self.flushed) | goes)
        became = of(self.head_en, self.after_head) | of(self.ripe_en, self.after_ripe)
        begins = self.begins | (self.head_en & self.head_last) | (self.ripe_en & self.ripe_last)
        linked = (self.linked | of(self.fill_en, self.last)) & ~of(self.release_en, self.before)
        m.d.sync += [
            self.valid.eq(comes | self.valid & stays), self.linked.eq(linked & ~comes),
            self.head.eq(of(begins, comes) | ~comes & stays & (self.head | became)),
            self.second.eq(of(~begins & self.behind_head, comes)
                           | ~comes & stays & ~became & (self.second | self.seconds)),
            self.promoted.eq(became), self.at_end.eq(self.ends & stays),
            self.reserved.eq((self.reserved | of(self.reserve_en, self.free)) & ~goes & ~comes),
        ]
        return m


# Record of a node with filled holes: one bit per hole of LIST or RUNS, and the number of open holes.
KEPT = data.StructLayout({"open": abi.RUNS_HOLES, "left": COUNT_WIDTH})


class HolesLeft(wiring.Component):
    """Open holes of a node. Combinational; kept as a block because the mark depends on it.

    Nothing is stored for an untouched node: all its holes are open. For a BITMAP the body itself is the open holes.

    Members
    -------
    touched : In(1)
    count, encoding, body : In
        Of the node.
    kept : In(KEPT)
    o : Out(Pending)
    """

    def __init__(self):
        super().__init__({"touched": In(1), "count": In(COUNT_WIDTH), "encoding": In(ENCODING_WIDTH),
                          "body": In(abi.NODE_BODY_BITS), "kept": In(KEPT), "o": Out(Pending)})

    def elaborate(self, platform):
        m = Module()
        all_open = Signal(abi.RUNS_HOLES)
        m.d.comb += [
            all_open.eq(thermometer(m, self.count, abi.RUNS_HOLES, "unfilled")),
            self.o.left.eq(Mux(self.touched, self.kept.left, self.count)),
            self.o.open.eq(Mux(self.encoding == abi.Encoding.BITMAP.value, self.body,
                               Mux(self.touched, self.kept.open, all_open))),
        ]
        return m


EIGHT = 8       # bits that are counted in a cycle


def _count(m, count, bits):
    """Count the set bits of ``bits`` into ``count``, two cycles late."""
    m.d.sync += count.eq(adder_tree(group_counts(m, bits, EIGHT, f"{count.name}_of_")))


def _bit(m, name, i, among, bits):
    """Return the bit of ``bits`` selected by the bit that is set in both others, through a separate block."""
    m.submodules[name] = it = OneHotBit(len(bits))
    m.d.comb += [it.i.eq(i), it.among.eq(among), it.bits.eq(bits)]
    return it.o


def _any(m, name, i, among):
    """Return whether a bit is set in both; at most one may be."""
    return _bit(m, name, i, among, among)


class CacheChains(wiring.Component):
    """State and links of the entries of the head cache, and all of the cache that is in memories.

    Every node stores the entry of its successor. The successor of a head is also held in registers: when the
    head leaves, its successor is the head at once; the successor of that is read in the next cycle, in which the list
    ``settles``. Lookup results are masked by the valid bits.

    A head that is done is picked in one cycle, its successor is read in the next; then it may leave.

    Open holes take a bit per hole of a LIST or RUNS node, beside the node; a mark to a BITMAP
    writes its body. Nodes are filled in cycles without such a mark.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    tags : In(tag_match_layout(params))
        Of the header that was looked up last.
    match, retire, fill : In
        As for :class:`~weft.hdl.adamap.cache.head_cache.HeadCache`, except the inputs of the tags.
    idle : Out(1)
        No entry is reserved for a fetch.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "tags": In(tag_match_layout(params)), "match": In(match_port(params)), "retire": In(retire_port(params)),
            "fill": In(fill_port(params)), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        n = self.params.cache_entries
        tags, match, fill = self.tags, self.match, self.fill
        m.submodules.entry_state = entry_state = EntryState(n)
        valid, head, linked = entry_state.valid, entry_state.head, entry_state.linked
        free = Signal(n, name="free")
        m.d.comb += free.eq(~valid & ~entry_state.reserved)
        self._memories(m, tags)
        record = self._records(m, n)
        heads = self._look_up(m, tags, entry_state, record)
        last, at_last = self._end(m, tags.listed, entry_state, record), entry_state.at_end
        m.submodules.goes_on = goes_on = AnyBit(n)
        m.d.comb += goes_on.i.eq(at_last)
        behind_head = _any(m, "behind_head", at_last, head)
        successor, predecessor = self._links(m, n, last, goes_on.o)
        ripe, after_ripe = self._ripe(m, tags, entry_state, successor)

        # The predecessor of a released node; the peek index is stable a cycle before the release.
        before = Signal(data.StructLayout({"there": 1, "of": len(last), "index": len(last)}), name="before_peeked")
        m.d.sync += [before.there.eq(fill.peek_valid & ~Array(head)[fill.peek_index]),
                     before.of.eq(fill.peek_index), before.index.eq(predecessor)]
        self._promote(m, entry_state, after_ripe.index, successor)
        m.d.comb += [
            entry_state.head_en.eq(match.retire_head), entry_state.heads.eq(heads),
            entry_state.ripe_en.eq(match.retire_ripe), entry_state.ripe.eq(ripe),
            entry_state.after_ripe.eq(one_hot(after_ripe.there, after_ripe.index, n)),
            entry_state.flush_en.eq(match.flush_en),
            entry_state.flushed.eq(tags.flushed),
            entry_state.release_en.eq(fill.release_en), entry_state.released.eq(one_hot(1, fill.release_index, n)),
            entry_state.before.eq(one_hot(before.there & (fill.release_index == before.of), before.index, n)),
            entry_state.fill_en.eq(fill.fill_en), entry_state.filled.eq(one_hot(1, fill.fill_index, n)),
            entry_state.begins.eq(~goes_on.o), entry_state.behind_head.eq(behind_head),
            entry_state.head_last.eq(_bit(m, "head_ends", tags.own, head, at_last)),
            entry_state.ripe_last.eq(match.ripe_index == last), entry_state.last.eq(at_last),
            entry_state.reserve_en.eq(fill.reserve_en), entry_state.free.eq(one_hot(1, fill.free_index, n) & free),
        ]
        m.submodules.any_free = any_free = AnyBit(n)
        m.d.comb += [
            any_free.i.eq(free),
            fill.peek_valid.eq(Array(valid)[fill.peek_index]), fill.peek_last.eq(~Array(linked)[fill.peek_index]),
            fill.peek_touched.eq(Array(tags.touched)[fill.peek_index]),
        ]
        candidates = Signal(n)
        m.d.comb += candidates.eq(valid & ~head & ~linked & ~tags.touched)
        m.d.sync += [fill.free.eq(any_free.o & ~fill.reserve_en), fill.free_index.eq(priority_encode(free)),
                     fill.candidate.eq(candidates.any()), fill.candidate_index.eq(priority_encode(candidates))]
        _count(m, fill.free_count, free)
        m.d.comb += self.idle.eq(~entry_state.reserved.any())
        return m

    def _records(self, m, n):
        """Build the record memory; return a function that reads the record of an entry, combinationally."""
        fill, node = self.fill, self.fill.fill_node
        m.submodules.records = records = Memory(shape=cached_record(self.params), depth=n, init=[])
        write = records.write_port()
        m.d.comb += [
            write.en.eq(fill.fill_en), write.addr.eq(fill.fill_index),
            *[write.data[name].eq(node[name]) for name, _ in cached_record(self.params)],
        ]

        def record(index):
            return read_word(m, records, index)

        m.d.comb += fill.peek.eq(record(fill.peek_index))
        for side in (self.match, self.retire):
            m.d.comb += side.read_node.eq(record(side.read_index))
        return record

    def _look_up(self, m, tags, entry_state, record):
        """Show the entries of the looked-up header's list; return its head, one-hot."""
        match, n, head, heads = self.match, self.params.cache_entries, entry_state.head, Signal.like(entry_state.head)
        m.submodules.head, m.submodules.hit = own_head, hit = OneHotEncoder(n), OneHotEncoder(n)
        own, inside = tags.own, tags.inside
        for name, found, among, bits, o in (
                ("head_behind", own, head, tags.before_head, match.before_head),
                ("head_passed", own, head, tags.passed, match.passed),
                ("next_one", inside, entry_state.second, entry_state.valid, match.next),
                ("unsettled", own, entry_state.promoted, entry_state.linked, match.settles)):
            m.d.comb += o.eq(_bit(m, name, found, among, bits))
        m.d.comb += [
            heads.eq(own & head), entry_state.after_head.eq(own & entry_state.second),
            own_head.i.eq(own), own_head.among.eq(head),
            match.head.eq(own_head.found), match.head_index.eq(own_head.index),
            hit.i.eq(inside), hit.among.eq(entry_state.valid),
            match.hit.eq(hit.found), match.index.eq(hit.index),
        ]
        shown = Signal.like(match.head_index, name="head_shown")
        m.d.sync += shown.eq(match.head_index)
        m.d.comb += match.head_rsn.eq(record(shown).rsn)
        # The depth is subtracted from the count of the first entries, in parallel with the other counts.
        cached, few = own & entry_state.valid, Signal(signed(len(match.depth) + 1), name="cached_of_first")
        m.d.sync += few.eq(adder_tree(cached[:EIGHT]) - match.depth)
        m.d.sync += match.full.eq(adder_tree([few, *group_counts(m, cached[EIGHT:], EIGHT, "cached_of_")]) >= 0)
        return heads

    def _promote(self, m, entry_state, after_ripe, successor):
        """Promote the successor of a head that left; a cycle later, read the successor of that."""
        match, n = self.match, len(entry_state.valid)
        m.submodules.second_one = second = OneHotEncoder(n)
        index = Signal(index_width(self.params), name="promoted_index")
        m.d.comb += [second.i.eq(entry_state.after_head), second.among.eq(entry_state.valid),
                     entry_state.seconds.eq(one_hot((entry_state.promoted & entry_state.linked).any(),
                                                    successor(index), n))]
        m.d.sync += index.eq(Mux(match.retire_head, second.index, after_ripe))

    def _ripe(self, m, tags, entry_state, successor):
        """Pick a head that is done; return it, one-hot, and its successor. If that changes, it is picked again."""
        match, fill, n, heads = self.match, self.fill, self.params.cache_entries, entry_state.head
        index = Signal(index_width(self.params), name="picked_index")
        after = Signal(data.StructLayout({"there": 1, "index": index_width(self.params)}), name="behind_ripe")
        ripe, changes = Signal(n), Signal(n)
        picked, shown = Signal(n, name="ripe_picked"), Signal(n, name="ripe_shown")
        m.d.comb += [
            ripe.eq(heads & tags.done), match.ripening.eq(_any(m, "ripening", heads, tags.done)),
            changes.eq((match.flush_en | fill.release_en).replicate(n)
                       | (entry_state.at_end & fill.fill_en.replicate(n))),
            match.ripe.eq(_any(m, "still", shown, heads)),      # it may have left in the cycle before
        ]
        m.d.sync += [picked.eq(lowest_one_hot(m, ripe, "ripest") & ~match.flush_en.replicate(n)),
                     index.eq(priority_encode(ripe)),
                     shown.eq(picked & heads & ~changes), match.ripe_index.eq(index),
                     after.there.eq(_any(m, "ripe_linked", picked, entry_state.linked)),
                     after.index.eq(successor(index))]
        return shown, after

    def _end(self, m, of_qp, entry_state, record):
        """Return the entry that was at the end of the list selected in the cycle before."""
        fill, n, valid = self.fill, self.params.cache_entries, entry_state.valid
        listed, ends = Signal(n, name="listed"), entry_state.ends
        end, ended = Signal(index_width(self.params), name="end"), Signal(name="ended")
        m.d.comb += ends.eq(listed & valid & ~entry_state.linked)
        _count(m, fill.cached, listed)
        m.d.sync += [listed.eq(valid & of_qp), fill.none.eq(~listed.any()), end.eq(encode_one_hot(ends)),
                     ended.eq(ends.any())]
        last = record(end)
        m.d.comb += fill.follows.eq(~ended | sum_equals(last.rsn, last.count, fill.fill_node.rsn))
        return end

    def _links(self, m, n, last, goes_on):
        """Build the link memories; return a function for an entry's successor, and the predecessor of the peeked entry.
        """
        fill, shape = self.fill, index_width(self.params)
        m.submodules.nexts = nexts = Memory(shape=shape, depth=n, init=[])
        m.submodules.befores = befores = Memory(shape=shape, depth=n, init=[])
        after, before = nexts.write_port(), befores.write_port()
        m.d.comb += [
            after.en.eq(fill.fill_en & goes_on), after.addr.eq(last), after.data.eq(fill.fill_index),
            before.en.eq(fill.fill_en), before.addr.eq(fill.fill_index), before.data.eq(last),
        ]
        return (lambda index: read_word(m, nexts, index)), read_word(m, befores, fill.peek_index)

    def _memories(self, m, tags):
        """Build the memories of bodies, open holes and blocks."""
        match, retire, fill, n = self.match, self.retire, self.fill, self.params.cache_entries
        m.submodules.bases = bases = Memory(shape=NODE_BASE, depth=n, init=[])
        m.submodules.bodies = bodies = Memory(shape=abi.NODE_BODY_BITS, depth=n, init=[])
        m.submodules.pendings = pendings = Memory(shape=KEPT, depth=n, init=[])
        m.submodules.blocks = blocks = Memory(shape=self.params.block_bits, depth=n, init=[])
        base_write, body_write, write = bases.write_port(), bodies.write_port(), pendings.write_port()
        block_write, block_peek, block_read = blocks.write_port(), blocks.read_port(), blocks.read_port()
        node, mark_body = fill.fill_node, match.mark_en & match.mark_bitmap
        m.d.comb += [
            fill.fill_ready.eq(~match.mark_bitmap),
            write.en.eq(match.mark_en), write.addr.eq(match.mark_index),
            write.data.open.eq(match.mark.open), write.data.left.eq(match.mark.left),
            body_write.en.eq(mark_body | fill.fill_en),
            body_write.addr.eq(Mux(mark_body, match.mark_index, fill.fill_index)),
            body_write.data.eq(Mux(mark_body, match.mark.open, node.body)),
            base_write.en.eq(fill.fill_en), base_write.addr.eq(fill.fill_index),
            *[base_write.data[name].eq(node[name]) for name in ("base_psn", "encoding")],
            block_write.en.eq(fill.fill_en), block_write.addr.eq(fill.fill_index), block_write.data.eq(fill.fill_block),
            block_read.en.eq(retire.read_en), block_read.addr.eq(retire.read_index), retire.block.eq(block_read.data),
            block_peek.en.eq(1), block_peek.addr.eq(fill.peek_index), fill.peek_block.eq(block_peek.data),
        ]
        for name, side in (("unmatched", match), ("unretired", retire)):
            m.submodules[name] = left = HolesLeft()
            base, body, read = read_word(m, bases, side.read_index), bodies.read_port(), pendings.read_port()
            for port in (body, read):
                m.d.comb += [port.en.eq(side.read_en), port.addr.eq(side.read_index)]
            m.d.comb += [left.body.eq(body.data), left.kept.eq(read.data), side.pending.eq(left.o)]
            with m.If(side.read_en):
                m.d.sync += [left.touched.eq(Array(tags.touched)[side.read_index]),
                             left.count.eq(side.read_node.count), left.encoding.eq(base.encoding)]
            if side is match:
                m.d.comb += [match.read_base.eq(base), match.node.encoding.eq(left.encoding),
                             match.node.body.eq(body.data)]
