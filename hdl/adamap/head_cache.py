"""Shared cache of the first Adamap nodes of every list in recovery."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import abi
from ..layouts import NODE
from ..params import CardParams

COUNT_WIDTH = 9     # of the holes of one node


class CachedNode(data.Struct):
    """What the matcher needs of a node."""

    base_psn: 32
    encoding: 4
    body: abi.NODE_BODY_BITS
    rsn: 32
    count: COUNT_WIDTH
    line: 58


class Tag(data.Struct):
    """What a cache entry holds; ``touched`` says that a hole of it was filled."""

    valid: 1
    reserved: 1
    touched: 1
    qpn: 24
    generation: 8
    rsn: 32
    count: COUNT_WIDTH


def match_port(params):
    """The matcher's side, as the matcher sees it.

    ``hit``, ``index`` and ``slot`` answer the lookup in the same cycle; ``node``, ``open`` and ``left`` come one
    cycle after ``read_en`` and stay.
    """
    index = params.cache_entries.bit_length() - 1 or 1
    return wiring.Signature(
        {
            "qpn": Out(24),
            "generation": Out(8),
            "rsn": Out(24),
            "hit": In(1),
            "index": In(index),
            "slot": In(COUNT_WIDTH),
            "read_en": Out(1),
            "read_index": Out(index),
            "node": In(CachedNode),
            "open": In(abi.NODE_HOLES_MAX),
            "left": In(COUNT_WIDTH),
            "mark_en": Out(1),
            "mark_index": Out(index),
            "mark_open": Out(abi.NODE_HOLES_MAX),
            "mark_left": Out(COUNT_WIDTH),
            "drop_en": Out(1),
            "drop_index": Out(index),
            "flush_en": Out(1),
            "flush_qpn": Out(24),
        }
    )


def fill_port(params):
    """The prefetcher's side, as the prefetcher sees it.

    ``free``/``free_index`` name an unused entry, ``free_count`` how many there are (a cycle late); ``reserve_en``
    takes it. ``fill_en`` turns a reserved entry into a valid one, ``release_en`` gives one back. ``peek`` shows the
    tag of ``peek_index``, ``peek_line`` its block a cycle later.
    """
    index = params.cache_entries.bit_length() - 1 or 1
    return wiring.Signature({
        "free": In(1), "free_index": In(index), "free_count": In(range(params.cache_entries + 1)), "reserve_en": Out(1),
        "fill_en": Out(1), "fill_index": Out(index), "fill_node": Out(NODE), "fill_line": Out(58),
        "release_en": Out(1), "release_index": Out(index),
        "peek_index": Out(index), "peek": In(Tag), "peek_line": In(58),
    })


class HeadCache(wiring.Component):
    """Nodes of all QPs in one pool; tags compared in parallel, bodies in memory.

    One lookup, one read and one mark per cycle. Entries grow with ``params.cache_entries`` alone, not with QPs.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    match : In(match_port(params))
    fill : In(fill_port(params))
    idle : Out(1)
        No entry is reserved for a fetch.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "match": In(match_port(params)),
            "fill": In(fill_port(params)),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        n = self.params.cache_entries
        match, fill = self.match, self.fill
        tags = [Signal(Tag, name=f"tag{k}") for k in range(n)]
        m.submodules.nodes = nodes = Memory(shape=CachedNode, depth=n, init=[])
        m.submodules.opens = opens = Memory(
            shape=data.StructLayout({"open": abi.NODE_HOLES_MAX, "left": COUNT_WIDTH}), depth=n, init=[])
        m.submodules.lines = lines = Memory(shape=58, depth=n, init=[])
        node_write, node_read = nodes.write_port(), nodes.read_port()
        open_write, open_read = opens.write_port(), opens.read_port()
        line_write, line_read = lines.write_port(), lines.read_port()

        for k, tag in enumerate(tags):
            slot = Signal(24, name=f"slot{k}")
            m.d.comb += slot.eq(match.rsn - tag.rsn[:24])
            with m.If(tag.valid & (tag.qpn == match.qpn) & (tag.generation == match.generation) & (slot < tag.count)):
                m.d.comb += [match.hit.eq(1), match.index.eq(k), match.slot.eq(slot)]

        touched = Signal()
        m.d.comb += [
            node_read.en.eq(match.read_en),
            node_read.addr.eq(match.read_index),
            match.node.eq(node_read.data),
            open_read.en.eq(match.read_en),
            open_read.addr.eq(match.read_index),
            match.open.eq(
                Mux(touched, open_read.data.open, ((Const(1, 1) << node_read.data.count) - 1)[: abi.NODE_HOLES_MAX])
            ),
            match.left.eq(Mux(touched, open_read.data.left, node_read.data.count)),
            open_write.en.eq(match.mark_en),
            open_write.addr.eq(match.mark_index),
            open_write.data.open.eq(match.mark_open),
            open_write.data.left.eq(match.mark_left),
        ]
        with m.If(match.read_en):
            m.d.sync += touched.eq(Array(tag.touched for tag in tags)[match.read_index])

        node = fill.fill_node
        m.d.comb += [
            node_write.en.eq(fill.fill_en), node_write.addr.eq(fill.fill_index),
            node_write.data.base_psn.eq(node.base_psn), node_write.data.encoding.eq(node.encoding),
            node_write.data.body.eq(node.body), node_write.data.rsn.eq(node.rsn), node_write.data.count.eq(node.count),
            node_write.data.line.eq(fill.fill_line),
            line_write.en.eq(fill.fill_en), line_write.addr.eq(fill.fill_index), line_write.data.eq(fill.fill_line),
            line_read.en.eq(1), line_read.addr.eq(fill.peek_index), fill.peek_line.eq(line_read.data),
            fill.peek.eq(Array(tag.as_value() for tag in tags)[fill.peek_index]),
        ]

        for k, tag in reversed(list(enumerate(tags))):
            with m.If(~tag.valid & ~tag.reserved):
                m.d.comb += [fill.free.eq(1), fill.free_index.eq(k)]
            with m.If(fill.reserve_en & (fill.free_index == k)):
                m.d.sync += tag.reserved.eq(1)
            with m.If(fill.release_en & (fill.release_index == k)):
                m.d.sync += [tag.reserved.eq(0), tag.valid.eq(0)]
            with m.If(match.mark_en & (match.mark_index == k)):
                m.d.sync += tag.touched.eq(1)
            with m.If((match.drop_en & (match.drop_index == k)) | (match.flush_en & (tag.qpn == match.flush_qpn))):
                m.d.sync += tag.valid.eq(0)
            with m.If(fill.fill_en & (fill.fill_index == k)):
                m.d.sync += tag.eq(Tag.const({"valid": 1}))
                m.d.sync += [
                    tag.qpn.eq(node.qpn),
                    tag.generation.eq(node.generation),
                    tag.rsn.eq(node.rsn),
                    tag.count.eq(node.count),
                ]
        m.d.sync += fill.free_count.eq(sum(~tag.valid & ~tag.reserved for tag in tags))
        m.d.comb += self.idle.eq(~Cat(tag.reserved for tag in tags).any())
        return m
