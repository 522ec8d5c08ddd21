"""Matcher and head cache, with the signals that a bench observes."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hdl.adamap.cache.cached import fill_port
from weft.hdl.adamap.cache.head_cache import HeadCache
from weft.hdl.adamap.match.matcher import Matcher
from weft.tb.sim.block.adamap.with_qp_table import pass_through


class WithHeadCache(wiring.Component):
    """The ports of the matcher that the cache does not take, and further ones.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    fill : In(fill_port(params))
        The cache's port for the prefetcher; ``fill_en`` counts only while ``fill_ready``.
    looked_qpn : Out(24)
        QP of the header that is looked up.
    leaves, leaves_qpn : Out
        A node leaves its list.
    cache_idle : Out(1)
    """

    def __init__(self, params):
        self.params = params
        self.matcher = Matcher(params)
        members = {name: m for name, m in self.matcher.signature.members.items() if name not in ("cache", "retire")}
        super().__init__({**members, "fill": In(fill_port(params)), "looked_qpn": Out(24), "leaves": Out(1),
                          "leaves_qpn": Out(24), "cache_idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.matcher = matcher = self.matcher
        m.submodules.cache = cache = HeadCache(self.params)
        connect(m, matcher.cache, cache.match)
        connect(m, matcher.retire, cache.retire)
        connect(m, flipped(self.fill), cache.fill)
        pass_through(m, matcher, self, except_for=("cache", "retire"))
        qpns = Array(Signal(24) for _ in range(self.params.cache_entries))      # of the nodes
        m.d.comb += [
            cache.fill.fill_en.eq(self.fill.fill_en & cache.fill.fill_ready),
            self.leaves.eq(matcher.cache.retire_head | matcher.cache.retire_ripe),
            self.leaves_qpn.eq(Mux(matcher.cache.retire_head, self.looked_qpn, qpns[cache.match.ripe_index])),
            self.cache_idle.eq(cache.idle),
        ]
        with m.If(cache.fill.fill_en):
            m.d.sync += qpns[cache.fill.fill_index].eq(cache.fill.fill_node.qpn)
        with m.If(matcher.cache.look_en):
            m.d.sync += self.looked_qpn.eq(matcher.cache.qpn)
        return m
