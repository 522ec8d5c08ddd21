"""Shared cache of the first Adamap nodes of every list in recovery."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from .cache_ports import fill_port, match_port, retire_port
from .cached import cached_record
from .chains import Chains
from .tags import Tags


class HeadCache(wiring.Component):
    """Nodes of all QPs in one pool: tags compared in parallel, all else in memory.

    A lookup has two stages. The first one compares the tags with a header. The second one knows which of the nodes
    found are still there and which one is the head. The tag of a node is written when its entry is reserved, so that
    it is compared before the node is there.

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
        m.submodules.tags = tags = Tags(self.params)
        m.submodules.chains = chains = Chains(self.params)
        match, fill, node = self.match, self.fill, self.fill.fill_node
        wiring.connect(m, tags.says, chains.tags)
        for port, own in ((chains.match, match), (chains.retire, self.retire), (chains.fill, fill)):
            wiring.connect(m, wiring.flipped(own), port)
        m.d.comb += [
            tags.look_en.eq(match.look_en), tags.whose.qpn.eq(match.qpn), tags.whose.generation.eq(match.generation),
            tags.whose.rsn.eq(match.rsn), tags.reach.eq(match.reach),
            tags.mark_en.eq(match.mark_en), tags.mark_index.eq(match.mark_index),
            tags.mark_last.eq(match.mark.left == 0),
            tags.write_en.eq(fill.reserve_en), tags.write_index.eq(fill.free_index),
            *[tags.node[name].eq(node[name]) for name, _ in cached_record(self.params)],
            tags.flush_qpn.eq(match.flush_qpn), tags.listed_qpn.eq(fill.qpn), self.idle.eq(chains.idle),
        ]
        return m
