"""Shared cache of the first Adamap nodes of every list in recovery."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import abi
from ..logic import encoded, first, lowest, one_hot, sums_to, total
from ..params import CardParams
from .cache_ports import fill_port, match_port, retire_port
from .cached import NODE_BASE, cached_record, cached_tag, index_width
from .compared import REACH, WHOSE, Compared, Comparison
from .holes_left import KEPT, HolesLeft
from .index_of import AnyOf, BitOf, IndexOf
from .standing import Standing


class HeadCache(wiring.Component):
    """Nodes of all QPs in one pool: tags compared in parallel, all else in memory.

    A lookup has two stages. The first one compares the tags with a header. The second one knows which of the nodes
    found are still there and which one is the head; what is filled in meanwhile is compared on its way. Every node
    names the entry of the next one of its list. Which one comes behind a head is kept beside it: when the head leaves,
    that one is the head at once, and names the one behind it in the next cycle, in which the list ``settles``.

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
        match, fill, node = self.match, self.fill, self.fill.fill_node
        tags = [Signal(cached_tag(self.params), name=f"tag{k}") for k in range(n)]
        m.submodules.standing = standing = Standing(n)
        valid, head, linked = standing.valid, standing.head, standing.linked
        free = Signal(n, name="free")
        m.d.comb += free.eq(~valid & ~standing.reserved)
        self._memories(m, tags)
        record = self._records(m, n)
        heads = self._look_up(m, tags, standing, record)
        ripe, ripe_next = self._ripe(m, tags, standing, record)
        last, goes_on = self._end(m, tags, valid, linked, record)
        successor, predecessor = self._links(m, n, last, goes_on)

        unlinks = Signal()      # what is given back has one before it
        after_ripe = successor(match.ripe_index)
        self._promote(m, standing, after_ripe, successor)
        m.d.comb += [
            standing.head_en.eq(match.retire_head), standing.heads.eq(heads),
            standing.ripe_en.eq(match.retire_ripe), standing.ripe.eq(ripe),
            standing.after_ripe.eq(one_hot(ripe_next, after_ripe, n)),
            standing.flush_en.eq(match.flush_en),
            standing.flushed.eq(Cat(self._same(tag.qpn, match.flush_qpn) for tag in tags)),
            standing.release_en.eq(fill.release_en), standing.released.eq(one_hot(1, fill.release_index, n)),
            standing.before.eq(one_hot(unlinks, predecessor, n)),
            standing.fill_en.eq(fill.fill_en), standing.filled.eq(one_hot(1, fill.fill_index, n)),
            standing.begins.eq(~goes_on), standing.behind_head.eq(Array(head)[last]),
            standing.head_last.eq(match.head_index == last), standing.ripe_last.eq(match.ripe_index == last),
            standing.last.eq(one_hot(goes_on, last, n)),
            standing.reserve_en.eq(fill.reserve_en), standing.free.eq(one_hot(1, fill.free_index, n) & free),
            unlinks.eq((fill.release_index == fill.peek_index) & fill.peek_valid & ~Array(head)[fill.peek_index]),
        ]
        m.submodules.any_free = any_free = AnyOf(n)
        m.d.comb += [
            any_free.i.eq(free), fill.free.eq(any_free.o),
            fill.free_index.eq(first(free)),
            fill.peek_valid.eq(Array(valid)[fill.peek_index]), fill.peek_last.eq(~Array(linked)[fill.peek_index]),
            fill.peek_touched.eq(Array(tag.touched for tag in tags)[fill.peek_index]),
        ]
        for k, tag in enumerate(tags):
            with m.If(match.mark_en & (match.mark_index == k)):
                m.d.sync += [tag.touched.eq(1), tag.done.eq(match.mark.left == 0)]
            with m.If(fill.fill_en & standing.filled[k]):
                m.d.sync += [tag.touched.eq(0), tag.done.eq(0), tag.qpn.eq(node.qpn), tag.rsn.eq(node.rsn),
                             tag.generation.eq(node.generation), tag.count.eq(node.count)]
        spares = Signal(n)
        m.d.comb += spares.eq(valid & ~head & ~linked & Cat(~tag.touched for tag in tags))
        m.d.sync += [fill.free_count.eq(total(free)), fill.spare.eq(spares.any()), fill.spare_index.eq(first(spares))]
        m.d.comb += self.idle.eq(~standing.reserved.any())
        return m

    def _same(self, a, b):
        """Two numbers of QPs are the same; there are no others than those of the card."""
        return a[:self.params.qpn_width] == b[:self.params.qpn_width]

    def _records(self, m, n):
        """What reads the record of an entry, at once."""
        fill, node = self.fill, self.fill.fill_node
        m.submodules.records = records = Memory(shape=cached_record(self.params), depth=n, init=[])
        write = records.write_port()
        m.d.comb += [
            write.en.eq(fill.fill_en), write.addr.eq(fill.fill_index),
            *[write.data[name].eq(node[name]) for name in ("qpn", "generation", "rsn", "count")],
        ]

        def record(index):
            return self._read(m, records, index)

        m.d.comb += [fill.peek.eq(record(fill.peek_index)), self.match.read_node.eq(record(self.match.read_index))]
        return record

    def _read(self, m, memory, index):
        """A word of a memory, at once."""
        port = memory.read_port(domain="comb")
        m.d.comb += port.addr.eq(index)
        return port.data

    def _look_up(self, m, tags, standing, record):
        """Compare all tags with a header; a cycle later show what is there of its list. The list's head, one-hot."""
        match, fill, node, n, head = self.match, self.fill, self.fill.fill_node, len(tags), standing.head
        asked, looked = Signal(WHOSE, name="asked"), Signal(WHOSE, name="looked")
        reaching = Signal(REACH)
        m.submodules.head, m.submodules.hit = own_head, hit = IndexOf(n), IndexOf(n)
        own, inside, behind, passed, heads = (
            Signal(n, name=name) for name in ("own", "inside", "behind", "passed", "heads"))

        def compare(header, reach, entry, name):
            m.submodules[name] = it = Comparison(self.params.qpn_width)
            m.d.comb += [it.header.eq(header), it.reach.eq(reach), it.qpn.eq(entry.qpn), it.count.eq(entry.count),
                         it.generation.eq(entry.generation), it.rsn.eq(entry.rsn)]
            return it.of_list, it.holds, it.behind, it.passed

        staying = compare(looked, reaching, node, "staying")
        coming = [compare(asked, match.reach, entry, name) for entry, name in
                  [(node, "coming"), *((tag, f"entry{k}") for k, tag in enumerate(tags))]]
        m.d.comb += [asked.qpn.eq(match.qpn), asked.generation.eq(match.generation), asked.rsn.eq(match.rsn)]
        with m.If(match.look_en):
            m.d.sync += [looked.eq(asked), reaching.eq(match.reach)]
        for which, (bits, name) in enumerate((
                (own, "listed_ones"), (inside, "holding_ones"), (behind, "behind_ones"), (passed, "passed_ones"))):
            m.submodules[name] = kept = Compared(n)
            m.d.comb += [
                kept.look_en.eq(match.look_en), kept.entries.eq(Cat(each[which] for each in coming[1:])),
                kept.filled.eq(one_hot(fill.fill_en, fill.fill_index, n)), kept.coming.eq(coming[0][which]),
                kept.staying.eq(staying[which]), bits.eq(kept.bits),
            ]
        for name, found, among, bits, o in (
                ("head_behind", own, head, behind, match.behind), ("head_passed", own, head, passed, match.passed),
                ("next_one", inside, standing.second, standing.valid, match.next),
                ("unsettled", own, standing.promoted, standing.linked, match.settles)):
            m.submodules[name] = says = BitOf(n)
            m.d.comb += [says.i.eq(found), says.among.eq(among), says.bits.eq(bits), o.eq(says.o)]
        m.d.comb += [
            heads.eq(own & head), standing.after_head.eq(own & standing.second),
            own_head.i.eq(own), own_head.among.eq(head),
            match.head.eq(own_head.found), match.head_index.eq(own_head.index),
            match.head_node.eq(record(match.head_index)),
            hit.i.eq(inside), hit.among.eq(standing.valid),
            match.hit.eq(hit.found), match.index.eq(hit.index),
        ]
        m.d.sync += match.cached.eq(total(own & standing.valid))
        return heads

    def _promote(self, m, standing, after_ripe, successor):
        """What came behind a head that left is the head; a cycle later, it says which one comes behind it."""
        match, n = self.match, len(standing.valid)
        m.submodules.second_one = second = IndexOf(n)
        index = Signal(index_width(self.params), name="promoted_index")
        m.d.comb += [second.i.eq(standing.after_head), second.among.eq(standing.valid),
                     standing.seconds.eq(one_hot((standing.promoted & standing.linked).any(), successor(index), n))]
        m.d.sync += index.eq(Mux(match.retire_head, second.index, after_ripe))

    def _ripe(self, m, tags, standing, record):
        """Pick a head that is done; one-hot, and whether a node comes behind it."""
        match, n, heads = self.match, len(tags), standing.head
        ripe, shown, picked = Signal(n), Signal(n), Signal(n, name="ripe_picked")
        m.submodules.ripening = ripening = BitOf(n)
        m.submodules.still = still = BitOf(n)       # it may have left in the cycle in which it was picked
        m.submodules.ripe_linked = followed = BitOf(n)
        m.d.comb += [
            ripe.eq(heads & Cat(tag.done for tag in tags)), match.ripening.eq(ripening.o),
            ripening.i.eq(heads), ripening.among.eq(Cat(tag.done for tag in tags)), ripening.bits.eq(heads),
            still.i.eq(picked), still.among.eq(heads), still.bits.eq(heads), match.ripe.eq(still.o),
            followed.i.eq(picked), followed.among.eq(heads), followed.bits.eq(standing.linked),
            match.ripe_node.eq(record(match.ripe_index)), shown.eq(picked & heads),
        ]
        m.d.sync += [picked.eq(lowest(m, ripe, "ripest") & ~match.flush_en.replicate(n)),
                     match.ripe_index.eq(first(ripe))]
        return shown, followed.o

    def _end(self, m, tags, valid, linked, record):
        """The entry with which the list spoken of ends, and whether it is there."""
        fill, n = self.fill, len(tags)
        listed, ends = Signal(n, name="listed"), Signal(n, name="ends")
        end, ended = Signal(index_width(self.params), name="end"), Signal(name="ended")
        m.d.comb += ends.eq(listed & valid & ~linked)
        m.d.sync += [listed.eq(valid & Cat(self._same(tag.qpn, fill.qpn) for tag in tags)),
                     fill.cached.eq(total(listed)), end.eq(encoded(ends)), ended.eq(ends.any())]
        last = record(end)
        m.d.comb += fill.follows.eq(~ended | sums_to(last.rsn, last.count, fill.fill_node.rsn))
        return end, ended & Array(valid)[end]

    def _links(self, m, n, last, goes_on):
        """Reads which entry comes after another one; and the entry before the one that is peeked at."""
        fill, shape = self.fill, index_width(self.params)
        m.submodules.nexts = nexts = Memory(shape=shape, depth=n, init=[])
        m.submodules.befores = befores = Memory(shape=shape, depth=n, init=[])
        after, before = nexts.write_port(), befores.write_port()
        m.d.comb += [
            after.en.eq(fill.fill_en & goes_on), after.addr.eq(last), after.data.eq(fill.fill_index),
            before.en.eq(fill.fill_en), before.addr.eq(fill.fill_index), before.data.eq(last),
        ]
        return (lambda index: self._read(m, nexts, index)), self._read(m, befores, fill.peek_index)

    def _memories(self, m, tags):
        """Bodies, pending holes and blocks of the entries."""
        match, retire, fill, n = self.match, self.retire, self.fill, len(tags)
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
        for name, side, holes in (("unmatched", match, match.read_node.count), ("unretired", retire, retire.count)):
            m.submodules[name] = left = HolesLeft()
            base, body, read = self._read(m, bases, side.read_index), bodies.read_port(), pendings.read_port()
            for port in (body, read):
                m.d.comb += [port.en.eq(side.read_en), port.addr.eq(side.read_index)]
            m.d.comb += [left.body.eq(body.data), left.kept.eq(read.data), side.pending.eq(left.o)]
            with m.If(side.read_en):
                m.d.sync += [left.touched.eq(Array(tag.touched for tag in tags)[side.read_index]),
                             left.count.eq(holes), left.encoding.eq(base.encoding)]
            if side is match:
                m.d.comb += [match.read_base.eq(base), match.node.encoding.eq(left.encoding),
                             match.node.body.eq(body.data)]
