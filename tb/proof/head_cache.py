"""What is proven of the head cache alone: the nodes of a list are consecutive, so that no RSN is in two entries."""

from amaranth.hdl import Array, Cat, Signal
from amaranth.lib import data

from weft.hdl.adamap.head_cache import HeadCache, Tag
from weft.hdl.params import preset
from weft.tb.proof.broken import Broken
from weft.tb.proof.specification import Spec

RSN_BITS, COUNT_BITS = 4, 2


class HeadCacheSpec(Spec):
    """Two QPs and four entries; a prefetcher and a matcher that do what the ports allow, in any order.

    A reserved entry is filled with a node that goes on where its list ends, or given back; the last node of a list is
    turned out, the first one retired, all of them flushed. The checks are proven together: one of them says how the
    entries hold the lists.
    """

    name = "head_cache"
    block = HeadCache
    entries, proof = 4, {"kind": "induction", "seconds": 200}

    def specify(self, m):
        entries = self.entries
        m.submodules.dut = dut = self.block(preset("test").with_(cache_entries=entries, knit_extents=2, block_bits=9))
        fill, match = dut.fill, dut.match
        index = range(entries)
        m.d.comb += [
            fill.reserve_en.eq(self.free(1, "reserve") & fill.free),
            fill.fill_en.eq(self.free(1, "fill")), fill.fill_index.eq(self.free(index, "fill_index")),
            fill.fill_node.qpn.eq(self.free(1, "node_qpn")), fill.fill_node.rsn.eq(self.free(RSN_BITS, "node_rsn")),
            fill.fill_node.count.eq(self.free(COUNT_BITS, "count")),
            fill.release_en.eq(self.free(1, "release")), fill.release_index.eq(self.free(index, "release_index")),
            fill.peek_index.eq(fill.release_index),
            match.retire_en.eq(self.free(1, "retire")), match.retire_index.eq(self.free(index, "retire_index")),
            match.flush_en.eq(self.free(1, "flush")), match.flush_qpn.eq(self.free(1, "flush_qpn")),
            match.qpn.eq(self.constant(m, 1, "some_qpn")), match.rsn.eq(self.constant(m, RSN_BITS, "some_rsn")),
        ]
        # What the ports were told of the entries, and the RSN with which each list begins.
        tag = data.StructLayout({"valid": 1, "reserved": 1, "qpn": 1, "rsn": RSN_BITS, "count": COUNT_BITS})
        copies = Array(Signal(tag, name=f"copy{k}") for k in index)
        begins = Array(Signal(RSN_BITS + 2, name=f"begin{q}") for q in range(2))
        node, victim, retired = fill.fill_node, copies[fill.release_index], copies[match.retire_index]
        m.d.comb += [match.retire_qpn.eq(retired.qpn), match.retire_end.eq(retired.rsn + retired.count)]
        for k, c in enumerate(copies):
            with m.If(fill.reserve_en & (fill.free_index == k)):
                m.d.sync += c.reserved.eq(1)
            with m.If(fill.release_en & (fill.release_index == k)):
                m.d.sync += [c.reserved.eq(0), c.valid.eq(0)]
            with m.If((match.retire_en & (match.retire_index == k))
                      | (match.flush_en & (c.qpn == match.flush_qpn[0]))):
                m.d.sync += c.valid.eq(0)
            with m.If(fill.fill_en & (fill.fill_index == k)):
                m.d.sync += [c.eq(0), c.valid.eq(1), c.qpn.eq(node.qpn), c.rsn.eq(node.rsn), c.count.eq(node.count)]
        with m.If(match.retire_en):
            m.d.sync += begins[retired.qpn].eq(retired.rsn + retired.count)
        others = Cat(c.valid & (c.qpn == node.qpn[0]) & ~(match.retire_en & (match.retire_index == k))
                     for k, c in enumerate(copies))
        with m.If(fill.fill_en & ~others.any()):
            m.d.sync += begins[node.qpn[0]].eq(node.rsn)
        self.assume(~fill.fill_en | (copies[fill.fill_index].reserved & fill.follows & (node.count != 0)))
        self.assume(~fill.release_en | victim.reserved | (victim.valid & fill.peek_last))
        self.assume(~match.retire_en | (retired.valid & (retired.rsn == begins[retired.qpn])))
        self.assume((fill.fill_en + fill.release_en <= 1) & ~(match.flush_en & (fill.fill_en | match.retire_en)))
        self.assume(~(fill.release_en & victim.valid & (match.retire_en | match.flush_en)))

        self.check("the entries hold what the ports were told, every list a chain", self._chains(copies, begins),
                   **self.proof)
        own = [c.valid & (c.qpn == match.qpn[0]) for c in copies]
        hits = [o & ((match.rsn[:RSN_BITS + 2] - c.rsn)[:RSN_BITS + 2] < c.count)
                for o, c in zip(own, copies, strict=True)]
        self.check("no RSN of a list in two entries", sum(hits) <= 1, **self.proof)
        self.check("a lookup finds the entry that holds the RSN, and no other", match.hit == Cat(hits).any(),
                   **self.proof)
        self.check("a list with nodes has one head, where it begins", match.head == Cat(own).any(), **self.proof)
        self.check("the head is the node with which the list begins",
                   ~match.head | (match.head_rsn == begins[match.qpn[0]]), **self.proof)
        self.check("a free entry holds nothing", ~fill.free | ~(
            copies[fill.free_index].valid | copies[fill.free_index].reserved), **self.proof)
        self.cover("a full cache of one list", Cat(own).all())
        self.cover("the last node of several is turned out",
                   fill.release_en & victim.valid & (sum(own) == entries) & (victim.qpn == match.qpn[0]))
        self.cover("a node lands while the one before retires", fill.fill_en & match.retire_en & (
            retired.qpn == node.qpn[0]) & (sum(own) != 0))

    def _chains(self, copies, begins):
        """What holds of every entry: no two of a list begin with the same RSN, each goes on where another ends."""
        parts = []
        for k, c in enumerate(copies):
            tag = self.inside(f"dut.tag{k}", Tag)
            others = [other for j, other in enumerate(copies) if j != k]
            first = c.rsn == begins[c.qpn]
            parts += [
                tag.valid == c.valid, tag.reserved == c.reserved, ~c.valid | ~c.reserved,
                ~c.valid | ((tag.qpn == c.qpn) & (tag.rsn == c.rsn) & (tag.count == c.count) & (tag.generation == 0)
                            & (c.count != 0) & (tag.head == first)),
                ~c.valid | first | Cat(o.valid & (o.qpn == c.qpn) & (o.rsn + o.count == c.rsn) for o in others).any(),
                ~c.valid | ~Cat(o.valid & (o.qpn == c.qpn) & (o.rsn == c.rsn) for o in others).any(),
            ]
        return parts


SPECS = [HeadCacheSpec]
BROKEN = [
    Broken(HeadCacheSpec, "the entries hold what the ports were told, every list a chain",
           ("tag.rsn == match.retire_end", "tag.rsn == match.retire_end + 1")),
    Broken(HeadCacheSpec, "no RSN of a list in two entries",
           ("fill.follows.eq(~own.any() | (before.any() & ~same.any()))", "fill.follows.eq(1)")),
    Broken(HeadCacheSpec, "no RSN of a list in two entries", ("before.any() & ~same.any()", "before.any()")),
    Broken(HeadCacheSpec, "a lookup finds the entry that holds the RSN, and no other",
           ("(slots[k] < tag.count)", "(slots[k] <= tag.count)")),
    Broken(HeadCacheSpec, "a list with nodes has one head, where it begins",
           ("tag.head.eq(~others.any())", "tag.head.eq(0)")),
    Broken(HeadCacheSpec, "a list with nodes has one head, where it begins",
           ("(tag.rsn == match.retire_end)", "(tag.rsn == 0)")),
    Broken(HeadCacheSpec, "the head is the node with which the list begins",
           ("tag.head.eq(~others.any())", "tag.head.eq(1)")),
    Broken(HeadCacheSpec, "a free entry holds nothing",
           ("Cat(~tag.valid & ~tag.reserved for tag in tags)", "Cat(~tag.valid for tag in tags)")),
]
