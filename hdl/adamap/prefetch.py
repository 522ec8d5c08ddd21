"""Fetches the nodes of every list ahead of the matcher."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from ..part.counting import count_outputs
from ..part.layouts import LineData, LineRequest, QpRef, Report
from ..table.kinds import QP_STATES
from .ahead import AheadKind, ahead_row, ahead_step
from .block import extent_member
from .cache_ports import fill_port
from .control import ControlOp
from .prefetch_parts import PrefetchParts
from .prefetch_states import prefetch_states


class Prefetch(wiring.Component):
    """Watermark prefetcher: pointer chase of many lists at once, one read in flight per list.

    It keeps nothing of a list: which block comes next and how many nodes are linked ahead stands in
    :class:`AheadTable`, RSNs and the number of nodes in the cache. A node has to go on where its list ends in the
    cache; the first one of an empty list may have any RSN. A list whose last node was fetched goes on where the next
    doorbell says. A last node that another one was linked behind since it was read is read again, for its pointer.

    Where a list's nodes lie in consecutive blocks (the one just fetched says so of its successor), a read fetches up
    to 4 of them, as far as they are linked and there is space; a block that turns out not to be the successor is
    forgotten.

    The cache is shared by need. The first node of a list may have any entry, and further ones leave an eighth of the
    cache free, unless a header waits for them. A read needs no entry: what it brought is kept beside the cache until
    its list may have one, mostly when the list's head retires; so the successor of every head is at hand, although
    heads alone may fill the cache. What is kept is forgotten, and read again later, when its place is needed for a list
    with a waiting header or without a node. For such a list another one's last node is turned out, too, if it is
    untouched and not its first.

    Independent of QP control state. A list is looked at when a doorbell, the matcher or an arriving node gives
    reason to: :class:`~weft.hdl.adamap.list_row.ListRow` reads what is known of it. A look takes 5 cycles and one more
    if it reads, an arriving read 6 and 4 per further block (:class:`~weft.hdl.adamap.arrival.Arrival`), one that was
    kept 8, and then its list is looked at once more. When a list with a waiting header finds no entry, or one without a
    node, another list gives one up: :class:`~weft.hdl.adamap.turn_out.TurnOut`.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    post_stb, post_qpn : In
        Nodes were linked.
    i_demand : In(stream.Signature(24))
    i_control : In(stream.Signature(ControlOp))
        DESTROY ends when no fetch of the QP is in flight.
    query_ahead, query_cached : Out(32)
        Nodes linked and not fetched; nodes in the cache.
    cache : Out(fill_port(params))
    row_en, row_index : Out
        Reads ``ahead`` (a cycle later).
    ahead : In(ahead_row(params))
        Nodes linked and not fetched, and where they begin.
    step : Out(stream.Signature(ahead_step(params)))
        One was fetched, or is fetched again, or the list ends. The QP has stood there for a cycle.
    qp : Out(QP_STATES.read_port(params))
        For the QP's generation.
    extent_base, extent_lines : arrays of In
        Where blocks may lie; ``lines`` 0: nowhere.
    prefetch_depth, prefetch_watermark : In(32)
    wake_stb, wake_qpn : Out
        A list changed.
    waiting_qpn, waiting : Out, In
    exclusive, granted : Out(1), In(1)
        As :class:`~weft.hdl.adamap.matcher.Matcher` has them.
    o_force : Out(stream.Signature(QpRef))
    o_line, i_line
    o_report : Out(stream.Signature(Report))
        Kind QP_ERROR.
    o_qp_error : Out(stream.Signature(24))
    count_prefetches : Out(1)
        Reads issued.
    idle : Out(1)
    """

    COUNTS = {"prefetches": 1}

    def __init__(self, params: CardParams):
        self.params = params
        width = params.qpn_width
        super().__init__({
            "post_stb": In(1), "post_qpn": In(width),
            "i_demand": In(stream.Signature(24)),
            "i_control": In(stream.Signature(ControlOp)),
            "query_ahead": Out(32), "query_cached": Out(32),
            "cache": Out(fill_port(params)),
            "row_en": Out(1), "row_index": Out(width), "ahead": In(ahead_row(params)),
            "step": Out(stream.Signature(ahead_step(params))), "qp": Out(QP_STATES.read_port(params)),
            "extent_base": In(58).array(params.knit_extents),
            "extent_lines": In(extent_member(params)).array(params.knit_extents),
            "prefetch_depth": In(32), "prefetch_watermark": In(32),
            "wake_stb": Out(1), "wake_qpn": Out(24),
            "waiting_qpn": Out(24), "waiting": In(1),
            "exclusive": Out(1), "granted": In(1),
            "o_force": Out(stream.Signature(QpRef)),
            "o_line": Out(stream.Signature(LineRequest)), "i_line": In(stream.Signature(LineData)),
            "o_report": Out(stream.Signature(Report)), "o_qp_error": Out(stream.Signature(24)),
            **count_outputs(self.COUNTS), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        parts, step = PrefetchParts(m, self), self.step
        # A wake is two cycles late: by then all has changed. That a list ended is seen a cycle later.
        waked, waked_qpn, ended = Signal(), Signal.like(parts.qpn), Signal()
        m.d.sync += [ended.eq(step.valid & step.ready & (step.p.kind == AheadKind.END)),
                     waked.eq(parts.arrival.lands | ended), waked_qpn.eq(parts.qpn),
                     self.wake_stb.eq(waked), self.wake_qpn.eq(waked_qpn)]
        prefetch_states(m, self, parts)
        return m
