"""Which of the cached nodes a header is for."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from ..part.logic import one_hot
from .cached import cached_record, cached_tag, index_width
from .compared import REACH, WHOSE, Compared, Comparison


def says(params):
    """Bits for each entry, see :class:`Tags`."""
    return wiring.Signature({name: Out(params.cache_entries) for name in (
        "own", "inside", "behind", "passed", "touched", "done", "flushed", "listed")})


class Tags(wiring.Component):
    """Tags of all entries of the head cache, compared with a header in parallel. A header per cycle, latency 1.

    What is written meanwhile is compared on its way, and what was found said of its entry a cycle later: two cycles
    after it was written, when it may become a node of a list. Nothing here knows which entries hold one.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    look_en, whose, reach : In(1), In(WHOSE), In(REACH)
        Another header.
    write_en, write_index, node : In(1), In, In(cached_record(params))
        A node comes into an entry that holds none.
    mark_en, mark_index, mark_last : In(1), In, In(1)
        A hole of an entry is filled, the last one.
    flush_qpn, listed_qpn : In(24)
        QPs of which to know all entries.
    says : Out(says(params))
        ``own``, ``inside``, ``behind``, ``passed``: what :class:`~weft.hdl.adamap.compared.Comparison` says of an entry
        and the last header: it is of the header's list, has its RSN, the header is behind it, it is passed over.
        ``touched``, ``done``: a hole was filled since the node came; all were. ``flushed``, ``listed``: it is of that
        QP; combinational.
    """

    def __init__(self, params: CardParams):
        self.params = params
        index = index_width(params)
        super().__init__({
            "look_en": In(1), "whose": In(WHOSE), "reach": In(REACH),
            "write_en": In(1), "write_index": In(index), "node": In(cached_record(params)),
            "mark_en": In(1), "mark_index": In(index), "mark_last": In(1),
            "flush_qpn": In(24), "listed_qpn": In(24),
            "says": Out(says(params)),
        })

    def elaborate(self, platform):
        m = Module()
        n, node, says = self.params.cache_entries, self.node, self.says
        tags = [Signal(cached_tag(self.params), name=f"tag{k}") for k in range(n)]
        writes = Signal(n)
        m.d.comb += [
            writes.eq(one_hot(self.write_en, self.write_index, n)),
            says.flushed.eq(Cat(self._same(tag.qpn, self.flush_qpn) for tag in tags)),
            says.listed.eq(Cat(self._same(tag.qpn, self.listed_qpn) for tag in tags)),
            says.touched.eq(Cat(tag.touched for tag in tags)), says.done.eq(Cat(tag.done for tag in tags)),
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
        """Two numbers of QPs are the same; there are no others than those of the card."""
        return a[:self.params.qpn_width] == b[:self.params.qpn_width]

    def _compare(self, m, tags, writes):
        looked, reaching, written = Signal(WHOSE, name="looked"), Signal(REACH), Signal(len(tags), name="written")

        def compare(header, reach, entry, name):
            m.submodules[name] = it = Comparison(self.params.qpn_width)
            m.d.comb += [it.header.eq(header), it.reach.eq(reach), it.qpn.eq(entry.qpn), it.count.eq(entry.count),
                         it.generation.eq(entry.generation), it.rsn.eq(entry.rsn)]
            return it.of_list, it.holds, it.behind, it.passed

        staying = compare(looked, reaching, self.node, "staying")
        coming = [compare(self.whose, self.reach, entry, name) for entry, name in
                  [(self.node, "coming"), *((tag, f"entry{k}") for k, tag in enumerate(tags))]]
        with m.If(self.look_en):
            m.d.sync += [looked.eq(self.whose), reaching.eq(self.reach)]
        m.d.sync += written.eq(writes)
        for which, (bits, name) in enumerate((
                (self.says.own, "listed_ones"), (self.says.inside, "holding_ones"), (self.says.behind, "behind_ones"),
                (self.says.passed, "passed_ones"))):
            m.submodules[name] = kept = Compared(len(tags))
            said = Signal(name=f"said{which}")
            m.d.sync += said.eq(Mux(self.look_en, coming[0][which], staying[which]))
            m.d.comb += [
                kept.look_en.eq(self.look_en), kept.entries.eq(Cat(each[which] for each in coming[1:])),
                kept.written.eq(written), kept.said.eq(said),
                bits.eq(kept.bits),
            ]
