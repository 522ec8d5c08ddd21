"""Shared cache of the first Adamap nodes of every list in recovery."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import abi
from ..layouts import NODE
from ..logic import below, choose, lowest, total
from ..params import CardParams

COUNT_WIDTH = 9         # of the holes of one node
ENCODING_WIDTH = 2      # of the encodings there are


class CachedNode(data.Struct):
    """Which holes a node has; of a BITMAP the body loses those that are filled."""

    base_psn: 32
    encoding: ENCODING_WIDTH
    body: abi.NODE_BODY_BITS


class Pending(data.Struct):
    """Holes of a node that were not filled yet, and how many they are.

    ``open`` is as in a RETIRE report: one bit per hole of a LIST or RUNS node, of a BITMAP what is left of the body.
    """

    open: abi.NODE_BODY_BITS
    left: COUNT_WIDTH


class Tag(data.Struct):
    """What a cache entry holds.

    ``head``: the first node of its list. ``touched``: a hole of it was filled. ``done``: all were.
    """

    valid: 1
    reserved: 1
    head: 1
    touched: 1
    done: 1
    qpn: 24
    generation: 8
    rsn: 32
    count: COUNT_WIDTH


def index_width(params):
    """Bits of the number of a cache entry."""
    return params.cache_entries.bit_length() - 1 or 1


def match_port(params):
    """The matcher's side, as the matcher sees it.

    In the cycle of ``qpn``, ``generation``, ``rsn``: ``hit``, ``index``, ``slot`` of the node with that RSN, ``next``
    (it follows the list's head), and ``head``, ``head_index``, ``head_rsn``, ``head_count`` of the list's first node;
    a cycle later ``cached``, the number of its nodes. ``ripe`` shows a head without open holes. ``node`` and
    ``pending`` come one cycle after ``read_en`` and stay; they lack the marks of that cycle and the next.
    ``mark_bitmap``: the node marked is a BITMAP.
    """
    index = index_width(params)
    return wiring.Signature({
        "qpn": Out(24), "generation": Out(8), "rsn": Out(24),
        "hit": In(1), "index": In(index), "slot": In(COUNT_WIDTH), "next": In(1),
        "head": In(1), "head_index": In(index), "head_rsn": In(32), "head_count": In(COUNT_WIDTH),
        "cached": In(range(params.cache_entries + 1)),
        "ripe": In(1), "ripe_index": In(index), "ripe_tag": In(Tag),
        "read_en": Out(1), "read_index": Out(index), "node": In(CachedNode), "pending": In(Pending),
        "mark_en": Out(1), "mark_index": Out(index), "mark_bitmap": Out(1), "mark": Out(Pending),
        "retire_en": Out(1), "retire_index": Out(index), "retire_qpn": Out(24), "retire_end": Out(32),
        "flush_en": Out(1), "flush_qpn": Out(24),
    })


def retire_port(params):
    """The side of the retirements, as they see it: ``pending`` and ``block`` come one cycle after ``read_en``."""
    return wiring.Signature({
        "read_en": Out(1), "read_index": Out(index_width(params)), "pending": In(Pending),
        "block": In(params.block_bits),
    })


def fill_port(params):
    """The prefetcher's side, as the prefetcher sees it.

    ``free``/``free_index`` name an unused entry, ``free_count`` how many there are (a cycle late); ``reserve_en``
    takes it. ``fill_en``, only while ``fill_ready``, turns a reserved entry into a valid one, ``release_en`` gives one
    back; ``follows`` tells whether ``fill_node`` has the RSN that comes next in its list, as far as nodes of the list
    are cached. ``peek`` shows the tag of ``peek_index``, ``peek_last`` whether no cached node follows it,
    ``peek_block`` its block a cycle later. ``cached`` is the number of nodes of ``cached_qpn``, two cycles later.
    """
    index = index_width(params)
    count = range(params.cache_entries + 1)
    return wiring.Signature({
        "free": In(1), "free_index": In(index), "free_count": In(count), "reserve_en": Out(1),
        "fill_en": Out(1), "fill_ready": In(1), "fill_index": Out(index), "fill_node": Out(NODE),
        "fill_block": Out(params.block_bits), "follows": In(1),
        "release_en": Out(1), "release_index": Out(index),
        "peek_index": Out(index), "peek": In(Tag), "peek_last": In(1),
        "peek_block": In(params.block_bits),
        "cached_qpn": Out(24), "cached": In(count),
    })


class HeadCache(wiring.Component):
    """Nodes of all QPs in one pool; tags compared in parallel, bodies in memory.

    Which holes are open takes a bit per hole of a LIST or RUNS node, beside the node; a BITMAP says it itself: a mark
    writes its body. Nodes are filled in cycles without such a mark.

    One lookup, one read, one mark and one retirement per cycle. Entries grow with ``params.cache_entries`` alone,
    not with QPs. The cached nodes of a list are consecutive and begin with its head.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    match : In(match_port(params))
    retire : In(retire_port(params))
    fill : In(fill_port(params))
    idle : Out(1)
        No entry is reserved for a fetch.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "match": In(match_port(params)),
            "retire": In(retire_port(params)),
            "fill": In(fill_port(params)),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        n = self.params.cache_entries
        match, fill = self.match, self.fill
        tags = [Signal(Tag, name=f"tag{k}") for k in range(n)]
        by_index = Array(tag.as_value() for tag in tags)

        self._memories(m, tags)
        self._lookup(m, tags)
        m.d.comb += fill.peek.eq(by_index[fill.peek_index])
        self._chain(m, tags)

        node = fill.fill_node
        others = Signal(n)      # nodes of the list that gets another one
        for k, tag in enumerate(tags):
            retires = match.retire_en & (match.retire_index == k)
            m.d.comb += others[k].eq(tag.valid & self._same(tag.qpn, node.qpn) & ~retires)
        free = Signal(n)
        m.d.comb += free.eq(Cat(~tag.valid & ~tag.reserved for tag in tags))
        first_free = lowest(m, free, "free")
        m.d.comb += [fill.free.eq(free.any()), fill.free_index.eq(choose(first_free, range(n)))]
        for k, tag in enumerate(tags):
            with m.If(fill.reserve_en & first_free[k]):
                m.d.sync += tag.reserved.eq(1)
            with m.If(fill.release_en & (fill.release_index == k)):
                m.d.sync += [tag.reserved.eq(0), tag.valid.eq(0)]
            with m.If(match.mark_en & (match.mark_index == k)):
                m.d.sync += [tag.touched.eq(1), tag.done.eq(match.mark.left == 0)]
            with m.If(match.retire_en & self._same(tag.qpn, match.retire_qpn) & (tag.rsn == match.retire_end)):
                m.d.sync += tag.head.eq(1)
            with m.If((match.retire_en & (match.retire_index == k))
                      | (match.flush_en & self._same(tag.qpn, match.flush_qpn))):
                m.d.sync += tag.valid.eq(0)
            with m.If(fill.fill_en & (fill.fill_index == k)):
                m.d.sync += tag.eq(Tag.const({"valid": 1}))
                m.d.sync += [tag.head.eq(~others.any()), tag.qpn.eq(node.qpn), tag.generation.eq(node.generation),
                             tag.rsn.eq(node.rsn), tag.count.eq(node.count)]
        m.d.sync += fill.free_count.eq(total(free))
        m.d.comb += self.idle.eq(~Cat(tag.reserved for tag in tags).any())
        of_list = Signal(n)
        m.d.sync += [of_list.eq(Cat(tag.valid & self._same(tag.qpn, fill.cached_qpn) for tag in tags)),
                     fill.cached.eq(total(of_list))]
        return m

    def _same(self, a, b):
        """Two numbers of QPs are the same; there are no others than those of the card."""
        return a[:self.params.qpn_width] == b[:self.params.qpn_width]

    def _chain(self, m, tags):
        """Whether a node goes on where its list ends in the cache, and whether one is where it ends."""
        fill, node = self.fill, self.fill.fill_node
        own, before, same, behind = (Signal(len(tags), name=name) for name in ("listed", "before", "same", "behind"))
        peek_end = Signal(32)
        m.d.comb += [
            peek_end.eq(fill.peek.rsn + fill.peek.count),
            fill.follows.eq(~own.any() | (before.any() & ~same.any())), fill.peek_last.eq(~behind.any()),
        ]
        for k, tag in enumerate(tags):
            end = Signal(32, name=f"end{k}")
            m.d.comb += [
                end.eq(tag.rsn + tag.count), own[k].eq(tag.valid & self._same(tag.qpn, node.qpn)),
                before[k].eq(own[k] & (end == node.rsn)), same[k].eq(own[k] & (tag.rsn == node.rsn)),
                behind[k].eq(tag.valid & self._same(tag.qpn, fill.peek.qpn) & (tag.rsn == peek_end)),
            ]

    def _lookup(self, m, tags):
        """Compare all tags with a header; pick a head that is done."""
        match, n = self.match, len(tags)
        own, hits, heads, ripe, first = (Signal(n, name=name) for name in ("own", "hits", "heads", "ripe", "first"))
        slots = [Signal(24, name=f"slot{k}") for k in range(n)]
        own_q = Signal(n)
        for k, tag in enumerate(tags):
            m.d.comb += [
                own[k].eq(tag.valid & self._same(tag.qpn, match.qpn) & (tag.generation == match.generation)),
                slots[k].eq(match.rsn - tag.rsn[:24]),
                hits[k].eq(own[k] & (slots[k] < tag.count)),
                heads[k].eq(own[k] & tag.head),
                ripe[k].eq(tag.valid & tag.head & tag.done),
            ]
        hit_rsn, end = Signal(32), Signal(32)
        m.d.comb += [
            first.eq(lowest(m, ripe, "ripe")),
            match.hit.eq(hits.any()), match.index.eq(choose(hits, range(n))),
            match.slot.eq(choose(hits, slots)), hit_rsn.eq(choose(hits, (tag.rsn for tag in tags))),
            match.head.eq(heads.any()), match.head_index.eq(choose(heads, range(n))),
            match.head_rsn.eq(choose(heads, (tag.rsn for tag in tags))),
            match.head_count.eq(choose(heads, (tag.count for tag in tags))),
            end.eq(match.head_rsn + match.head_count), match.next.eq(hit_rsn == end),
            match.ripe.eq(ripe.any()), match.ripe_index.eq(choose(first, range(n))),
            match.ripe_tag.eq(choose(first, (tag.as_value() for tag in tags))),
            match.cached.eq(total(own_q)),
        ]
        m.d.sync += own_q.eq(own)

    def _memories(self, m, tags):
        """Bodies, pending holes and blocks of the entries."""
        match, retire, fill, n = self.match, self.retire, self.fill, len(tags)
        m.submodules.bases = bases = Memory(shape=_NODE_BASE, depth=n, init=[])
        m.submodules.bodies = bodies = Memory(shape=abi.NODE_BODY_BITS, depth=n, init=[])
        m.submodules.pendings = pendings = Memory(shape=_PENDING_SLOTS, depth=n, init=[])
        m.submodules.blocks = blocks = Memory(shape=self.params.block_bits, depth=n, init=[])
        base_write, body_write, write = bases.write_port(), bodies.write_port(), pendings.write_port()
        block_write, block_peek, block_read = blocks.write_port(), blocks.read_port(), blocks.read_port()
        node, mark_body = fill.fill_node, match.mark_en & match.mark_bitmap
        m.d.comb += [
            fill.fill_ready.eq(~mark_body),
            write.en.eq(match.mark_en), write.addr.eq(match.mark_index),
            write.data.open.eq(match.mark.open), write.data.left.eq(match.mark.left),
            body_write.en.eq(mark_body | fill.fill_en),
            body_write.addr.eq(Mux(mark_body, match.mark_index, fill.fill_index)),
            body_write.data.eq(Mux(mark_body, match.mark.open, node.body)),
            base_write.en.eq(fill.fill_en), base_write.addr.eq(fill.fill_index),
            base_write.data.base_psn.eq(node.base_psn), base_write.data.encoding.eq(node.encoding),
            block_write.en.eq(fill.fill_en), block_write.addr.eq(fill.fill_index), block_write.data.eq(fill.fill_block),
            block_read.en.eq(retire.read_en), block_read.addr.eq(retire.read_index), retire.block.eq(block_read.data),
            block_peek.en.eq(1), block_peek.addr.eq(fill.peek_index), fill.peek_block.eq(block_peek.data),
        ]
        for side in (match, retire):    # an untouched node has no slots in memory: all its holes are open
            base, body, read = bases.read_port(), bodies.read_port(), pendings.read_port()
            touched, count = Signal(), Signal(COUNT_WIDTH)
            whole = Signal(_PENDING_SLOTS)
            for port in (base, body, read):
                m.d.comb += [port.en.eq(side.read_en), port.addr.eq(side.read_index)]
            m.d.comb += [
                whole.open.eq(below(m, count, abi.RUNS_HOLES, "unfilled")), whole.left.eq(count),
                side.pending.left.eq(Mux(touched, read.data.left, whole.left)),
            ]
            with m.If(base.data.encoding == abi.Encoding.BITMAP.value):
                m.d.comb += side.pending.open.eq(body.data)
            with m.Else():
                m.d.comb += side.pending.open.eq(Mux(touched, read.data.open, whole.open))
            with m.If(side.read_en):
                m.d.sync += [touched.eq(Array(tag.touched for tag in tags)[side.read_index]),
                             count.eq(Array(tag.count for tag in tags)[side.read_index])]
            if side is match:
                m.d.comb += [match.node.base_psn.eq(base.data.base_psn), match.node.encoding.eq(base.data.encoding),
                             match.node.body.eq(body.data)]


_NODE_BASE = data.StructLayout({"base_psn": 32, "encoding": ENCODING_WIDTH})
_PENDING_SLOTS = data.StructLayout({"open": abi.RUNS_HOLES, "left": COUNT_WIDTH})
