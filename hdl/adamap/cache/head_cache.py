"""Head cache: shared cache of the first Adamap nodes of every list in recovery."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...contract.params import CardParams
from ...part.logic import one_hot
from .cached import (
    HEADER_KEY,
    REACH,
    cached_record,
    cached_tag,
    fill_port,
    index_width,
    match_port,
    retire_port,
    tag_match_layout,
)
from .chains import CacheChains


class TagComparator(wiring.Component):
    """Compares a header with one node. Combinational.

    Parameters
    ----------
    qpn_width : int

    Members
    -------
    header, reach : In(HEADER_KEY), In(REACH)
    qpn, generation, rsn, count : In
        Of the node.
    of_list, holds : Out(1)
        The node is in the header's list. It is, and contains the header's RSN.
    before_head, passed : Out(1)
        For the head of the header's list only: the header is before it. The head must be retired.
    """

    def __init__(self, qpn_width):
        self.qpn_width = qpn_width
        super().__init__({
            "header": In(HEADER_KEY), "reach": In(REACH),
            "qpn": In(qpn_width), "generation": In(8), "rsn": In(24), "count": In(9),
            "of_list": Out(1), "holds": Out(1), "before_head": Out(1), "passed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        header, reach = self.header, self.reach
        slot, past = Signal(24), Signal(24)     # from the node's first RSN on
        beyond, bits = Signal(), len(self.count)
        m.d.comb += [
            slot.eq(header.rsn - self.rsn), past.eq(reach.passed_rsn - self.rsn),
            self.of_list.eq((self.qpn == header.qpn[:self.qpn_width]) & (self.generation == header.generation)),
            self.holds.eq(self.of_list & ~slot[bits:].any() & (slot[:bits] < self.count)),
            self.before_head.eq(slot[23]),
            beyond.eq(~past[23] & (past[bits:23].any() | (past[:bits] >= self.count))),
            self.passed.eq(Mux(reach.is_header, ~slot[23] & beyond, reach.any_head | (slot == 0))),
        ]
        return m


class TagMatch(wiring.Component):
    """Match bit of each entry. Latency 1.

    Kept as a block: ``look_en`` is late, and per-module mapping would trade depth for area (docs/development.md, "Size
    and longest paths").

    Parameters
    ----------
    width : int

    Members
    -------
    look_en, entries : In(1), In(width)
        There is a new header, and the results of its comparison with the entries.
    written, written_match : In(width), In(1)
        The entry that was written in the cycle before, and its comparison with the current header.
    bits : Out(width)
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"look_en": In(1), "entries": In(width), "written": In(width), "written_match": In(1),
                          "bits": Out(width)})

    def elaborate(self, platform):
        m = Module()
        for k in range(self.width):
            with m.If(self.look_en):
                m.d.sync += self.bits[k].eq(self.entries[k])
            with m.Elif(self.written[k]):
                m.d.sync += self.bits[k].eq(self.written_match)
        return m


class TagArray(wiring.Component):
    """Tags of all entries of the head cache, compared with a header in parallel. A header per cycle, latency 1.

    A tag being written is compared on its way, and the result is merged a cycle later: two cycles after the write,
    when the entry may become valid. This block does not know which entries are valid.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    look_en, header, reach : In(1), In(HEADER_KEY), In(REACH)
        A new header.
    write_en, write_index, node : In(1), In, In(cached_record(params))
        Write the tag of an entry that is not valid.
    mark_en, mark_index, mark_last : In(1), In, In(1)
        A hole of an entry is filled; it is the last one.
    flush_qpn, listed_qpn : In(24)
        QPs whose entries ``flushed`` and ``listed`` show.
    matches : Out(tag_match_layout(params))
        ``own``, ``inside``, ``before_head``, ``passed``: results of :class:`TagComparator` with the last header: the
        entry is of the header's list, contains its RSN, the header's RSN is older than its RSNs, it is passed over.
        ``touched``, ``done``: a hole was filled since the tag was written; all were. ``flushed``, ``listed``: the entry
        is of that QP; combinational.
    """

    def __init__(self, params: CardParams):
        self.params = params
        index = index_width(params)
        super().__init__({
            "look_en": In(1), "header": In(HEADER_KEY), "reach": In(REACH),
            "write_en": In(1), "write_index": In(index), "node": In(cached_record(params)),
            "mark_en": In(1), "mark_index": In(index), "mark_last": In(1),
            "flush_qpn": In(24), "listed_qpn": In(24),
            "matches": Out(tag_match_layout(params)),
        })

    def elaborate(self, platform):
        m = Module()
        n, node, matches = self.params.cache_entries, self.node, self.matches
        tags = [Signal(cached_tag(self.params), name=f"tag{k}") for k in range(n)]
        writes = Signal(n)
        m.d.comb += [
            writes.eq(one_hot(self.write_en, self.write_index, n)),
            matches.flushed.eq(Cat(self._same(tag.qpn, self.flush_qpn) for tag in tags)),
            matches.listed.eq(Cat(self._same(tag.qpn, self.listed_qpn) for tag in tags)),
            matches.touched.eq(Cat(tag.touched for tag in tags)), matches.done.eq(Cat(tag.done for tag in tags)),
        ]
        for k, tag in enumerate(tags):
            with m.If(self.mark_en & (self.mark_index == k)):
                m.d.sync += [tag.touched.eq(1), tag.done.eq(self.mark_last)]
            with m.If(writes[k]):
                m.d.sync += [tag.touched.eq(0), tag.done.eq(0), tag.qpn.eq(node.qpn), tag.rsn.eq(node.rsn),
                             tag.generation.eq(node.generation), tag.count.eq(node.count)]
        self._compare(m, tags, writes)
        return m

    def _same(self, a, b):
        """Return whether two QPNs are equal; only QPNs of the card occur."""
        return a[:self.params.qpn_width] == b[:self.params.qpn_width]

    def _compare(self, m, tags, writes):
        looked, reaching, written = Signal(HEADER_KEY, name="looked"), Signal(REACH), Signal(len(tags), name="written")

        def compare(header, reach, entry, name):
            m.submodules[name] = it = TagComparator(self.params.qpn_width)
            m.d.comb += [it.header.eq(header), it.reach.eq(reach), it.qpn.eq(entry.qpn), it.count.eq(entry.count),
                         it.generation.eq(entry.generation), it.rsn.eq(entry.rsn)]
            return it.of_list, it.holds, it.before_head, it.passed

        staying = compare(looked, reaching, self.node, "staying")
        coming = [compare(self.header, self.reach, entry, name) for entry, name in
                  [(self.node, "coming"), *((tag, f"entry{k}") for k, tag in enumerate(tags))]]
        with m.If(self.look_en):
            m.d.sync += [looked.eq(self.header), reaching.eq(self.reach)]
        m.d.sync += written.eq(writes)
        for which, (bits, name) in enumerate((
                (self.matches.own, "listed_ones"), (self.matches.inside, "holding_ones"),
                (self.matches.before_head, "behind_ones"),
                (self.matches.passed, "passed_ones"))):
            m.submodules[name] = match = TagMatch(len(tags))
            written_match = Signal(name=f"written_match{which}")
            m.d.sync += written_match.eq(Mux(self.look_en, coming[0][which], staying[which]))
            m.d.comb += [
                match.look_en.eq(self.look_en), match.entries.eq(Cat(each[which] for each in coming[1:])),
                match.written.eq(written), match.written_match.eq(written_match),
                bits.eq(match.bits),
            ]


class HeadCache(wiring.Component):
    """Cached nodes of all QPs: a fully associative cache with tags in registers and everything else in memories.

    A lookup has two stages. The first one compares the tags with a header. The second one masks the matches with the
    valid bits and finds the head. The tag of a node is written when its entry is reserved, so it is compared before the
    node is valid.

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
        m.submodules.tags = tags = TagArray(self.params)
        m.submodules.chains = chains = CacheChains(self.params)
        match, fill, node = self.match, self.fill, self.fill.fill_node
        wiring.connect(m, tags.matches, chains.tags)
        for port, own in ((chains.match, match), (chains.retire, self.retire), (chains.fill, fill)):
            wiring.connect(m, wiring.flipped(own), port)
        m.d.comb += [
            tags.look_en.eq(match.look_en), tags.header.qpn.eq(match.qpn), tags.header.generation.eq(match.generation),
            tags.header.rsn.eq(match.rsn), tags.reach.eq(match.reach),
            tags.mark_en.eq(match.mark_en), tags.mark_index.eq(match.mark_index),
            tags.mark_last.eq(match.mark.left == 0),
            tags.write_en.eq(fill.reserve_en), tags.write_index.eq(fill.free_index),
            *[tags.node[name].eq(node[name]) for name, _ in cached_record(self.params)],
            tags.flush_qpn.eq(match.flush_qpn), tags.listed_qpn.eq(fill.qpn), self.idle.eq(chains.idle),
        ]
        return m
