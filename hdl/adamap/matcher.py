"""Matches retransmissions against the nodes of their QP's list, and retires nodes."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import abi
from ..layouts import REPORT_RETIRE, MatchRequest
from ..params import CardParams
from ..stream import Fifo
from .control import ControlKind, ControlOp, QpRef
from .head_cache import COUNT_WIDTH, match_port
from .hold import LongReport
from .hole import HoleCheck
from .wait_queue import LONG_TICKET_WIDTH, MatchItem, WaitQueue


class ListView(data.Struct):
    """What the matcher knows of a QP's list."""

    live: 1
    generation: 8
    fetched: 32
    linked: 32


class Head(data.Struct):
    """Start of a list: every RSN older than ``rsn`` is behind it; nodes retired so far."""

    rsn: 32
    retired: 32


class Source(enum.Enum, shape=2):
    """Where a header under way came from."""

    NEW = 0
    WAITING = 1
    FORCE = 2       # no header: the prefetcher wants an entry, the head must go


class Matcher(wiring.Component):
    """Level-2 control path: one subtraction, one compare, one bit.

    A header whose node is cached takes 5 cycles, one per 2 cycles, whatever the list's length; one that retires
    nodes takes 4 more per node, plus what the reports wait. A header whose node is not cached waits in the match
    queue, and behind it those of its QP; others go on. The oldest header of a QP is tried again
    when something changed for the QP.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(MatchRequest))
        Taken at once while ``room`` was high in the cycle before.
    room : Out(1)
    i_control : In(stream.Signature(ControlOp))
        CREATE empties the list; DESTROY takes the QP's nodes out of the cache.
    i_force : In(stream.Signature(QpRef))
        Retire the QP's head with its residue: its cache entry is needed.
    exclusive, granted : In(1), Out(1)
        While granted nothing is being matched.
    cache : Out(match_port(params))
    row_en, row_index : Out
        Reads ``list`` (a cycle later).
    list : In(ListView)
    prefetch_depth, retransmit_slack : In(32)
    wake_stb, wake_qpn : In
        The list or cache of a QP changed (at most a cycle ago).
    o_demand : Out(stream.Signature(24))
        QPs for which a fetch may have become possible or urgent.
    waiting_qpn, waiting : In(24), Out(1)
        Has this QP a waiting header?
    head_en, head_index, head : arrays of 2 read ports of :class:`Head`
        Data a cycle later.
    placed : In(24)
        Extended placed ticket.
    o_report : Out(stream.Signature(LongReport))
        Kind RETIRE.
    refuse_stb, refuse_reason : Out
    count_nodes_retired, count_nodes_residue, count_cache_hits, count_cache_misses, count_match_stall_cycles : Out(1)
    idle : Out(1)
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(MatchRequest)), "room": Out(1),
            "i_control": In(stream.Signature(ControlOp)),
            "i_force": In(stream.Signature(QpRef)),
            "exclusive": In(1), "granted": Out(1),
            "cache": Out(match_port(params)),
            "row_en": Out(1), "row_index": Out(params.qpn_width), "list": In(ListView),
            "prefetch_depth": In(32), "retransmit_slack": In(32),
            "wake_stb": In(1), "wake_qpn": In(24),
            "o_demand": Out(stream.Signature(24)),
            "waiting_qpn": In(24), "waiting": Out(1),
            "head_en": In(1).array(2), "head_index": In(params.qpn_width).array(2), "head": Out(Head).array(2),
            "placed": In(LONG_TICKET_WIDTH),
            "o_report": Out(stream.Signature(LongReport)),
            "refuse_stb": Out(1), "refuse_reason": Out(8),
            "count_nodes_retired": Out(1), "count_nodes_residue": Out(1),
            "count_cache_hits": Out(1), "count_cache_misses": Out(1), "count_match_stall_cycles": Out(1),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        cache = self.cache
        m.submodules.heads = heads = Memory(shape=Head, depth=self.params.qps, init=[])
        head_write, head_read = heads.write_port(), heads.read_port()
        for k in range(2):
            port = heads.read_port()
            m.d.comb += [port.en.eq(self.head_en[k]), port.addr.eq(self.head_index[k]), self.head[k].eq(port.data)]
        m.submodules.waits = waits = WaitQueue(self.params)
        m.submodules.check = check = HoleCheck()

        # New headers hold a place in the match queue from here until they are done.
        m.submodules.arrived = arrived = Fifo(MatchItem, self.params.match_queue)
        held, done = Signal(range(self.params.match_queue + 1)), Signal()
        ahead_of_placed = Signal(8)
        arriving = arrived.i.p
        m.d.comb += [
            ahead_of_placed.eq(self.i.p.ticket - self.placed[:8]),
            arriving.qpn.eq(self.i.p.qpn), arriving.generation.eq(self.i.p.generation), arriving.psn.eq(self.i.p.psn),
            arriving.rsn.eq(self.i.p.rsn), arriving.probe.eq(self.i.p.probe),
            arriving.ticket.eq(self.placed + ahead_of_placed.as_signed()),
            arrived.i.valid.eq(self.i.valid), self.i.ready.eq(arrived.i.ready),
            self.room.eq(held != self.params.match_queue),
        ]
        m.d.sync += held.eq(held + (self.i.valid & self.i.ready) - done)

        # Front: choose a header, look up its node, read its list.
        item, source, place = Signal(MatchItem), Signal(Source), Signal(range(self.params.match_queue))
        hit, index, slot, disturbed = Signal(), Signal.like(cache.index), Signal(COUNT_WIDTH), Signal()
        take, slow, back_idle = Signal(), Signal(), Signal()
        turn = Signal()
        m.d.comb += [self.row_index.eq(item.qpn), head_read.addr.eq(item.qpn)]
        wakes_item = self.wake_stb & (self.wake_qpn == item.qpn)

        def choose(m):
            """Load the next header into the front."""
            m.d.sync += disturbed.eq(0)
            with m.If(self.exclusive | self.i_control.valid):
                m.next = "PICK"
            with m.Elif(self.i_force.valid):
                m.d.comb += self.i_force.ready.eq(1)
                m.d.sync += [item.eq(0), item.qpn.eq(self.i_force.p.qpn), item.generation.eq(self.i_force.p.generation),
                             item.ticket.eq(self.placed), source.eq(Source.FORCE)]
                m.next = "LOOKUP"
            with m.Elif(waits.offered & (turn | ~arrived.o.valid)):
                m.d.comb += waits.pick_en.eq(1)
                m.d.sync += turn.eq(0)
                m.next = "FETCH"
            with m.Elif(arrived.o.valid):
                m.d.comb += arrived.o.ready.eq(1)
                m.d.sync += [item.eq(arrived.o.payload), source.eq(Source.NEW), turn.eq(1)]
                m.next = "LOOKUP"
            with m.Else():
                m.next = "PICK"

        with m.FSM(name="front") as front:
            with m.State("PICK"):  # waits for a header; between headers the QP's state may be changed
                with m.If((self.exclusive | self.i_control.valid) & back_idle):
                    with m.If(self.i_control.valid):
                        m.d.comb += self.i_control.ready.eq(1)
                    with m.Else():
                        m.d.comb += self.granted.eq(1)
                choose(m)
            with m.State("FETCH"):  # reads the waiting header
                m.d.sync += [item.eq(waits.picked), place.eq(waits.picked_place), source.eq(Source.WAITING),
                             disturbed.eq(self.wake_stb & (self.wake_qpn == waits.picked.qpn))]
                m.next = "LOOKUP"
            with m.State("LOOKUP"):  # compares all tags; waits while the back retires nodes
                with m.If(~slow):
                    m.d.comb += [self.row_en.eq(1), head_read.en.eq(1), cache.qpn.eq(item.qpn),
                                 cache.generation.eq(item.generation), cache.rsn.eq(item.rsn)]
                    m.d.sync += [hit.eq(cache.hit), index.eq(cache.index), slot.eq(cache.slot)]
                    m.next = "READ"
                with m.If(wakes_item):
                    m.d.sync += disturbed.eq(1)
            with m.State("READ"):  # waits until the back takes the header
                with m.If(wakes_item):
                    m.d.sync += disturbed.eq(1)
                with m.If(slow):
                    m.next = "LOOKUP"
                with m.Elif(take):
                    m.d.comb += [cache.read_en.eq(1), cache.read_index.eq(index)]
                    choose(m)
        with m.If(self.i_control.valid & self.i_control.ready):
            op = self.i_control.p
            with m.If(op.kind == ControlKind.CREATE):
                m.d.comb += [head_write.en.eq(1), head_write.addr.eq(op.qpn)]
            with m.Else():
                m.d.comb += [cache.flush_en.eq(1), cache.flush_qpn.eq(op.qpn)]

        self._back(m, front, waits, check, head_write, head_read,
                   item, source, place, hit, index, slot, disturbed, wakes_item, take, slow, back_idle, done)
        m.d.comb += [
            waits.wake_stb.eq(self.wake_stb), waits.wake_qpn.eq(self.wake_qpn),
            waits.waiting_qpn.eq(self.waiting_qpn), self.waiting.eq(waits.waiting),
            self.count_match_stall_cycles.eq(~waits.empty),
            self.idle.eq((held == 0) & back_idle & front.ongoing("PICK")),
        ]
        return m

    def _back(
        self,
        m,
        front,
        waits,
        check,
        head_write,
        head_read,
        new_item,
        new_source,
        new_place,
        new_hit,
        new_index,
        new_slot,
        new_disturbed,
        wakes_new,
        take,
        slow,
        back_idle,
        done,
    ):
        """Judge the header, clear its hole, retire what is finished or passed over, or make the header wait."""
        cache = self.cache
        item, source, place = Signal(MatchItem), Signal(Source), Signal.like(new_place)
        hit, index, slot, disturbed = Signal(), Signal.like(new_index), Signal.like(new_slot), Signal()
        last_index, last_known = Signal.like(index), Signal()
        last = Signal(data.StructLayout({"open": abi.NODE_HOLES_MAX, "left": COUNT_WIDTH}))
        is_header = source != Source.FORCE

        open_bits, left = Signal(abi.NODE_HOLES_MAX), Signal(COUNT_WIDTH)
        ahead, floor, retired = Signal(signed(24)), Signal(32), Signal(32)
        dead, more, cached, blocked = Signal(), Signal(), Signal(32), Signal()
        forcing, is_open = Signal(), Signal()
        slack = Signal(32)
        m.d.comb += [
            check.node.eq(cache.node),
            check.slot.eq(slot),
            check.psn.eq(item.psn),
            waits.ask_qpn.eq(item.qpn),
            waits.ask_queued.eq(source == Source.WAITING),
            waits.ask_place.eq(place),
            waits.place.eq(place),
            waits.insert_item.eq(item),
            cache.mark_index.eq(index),
            cache.mark_open.eq(open_bits & ~(1 << slot)[: abi.NODE_HOLES_MAX]),
            cache.mark_left.eq(left - 1),
            slack.eq(Mux(self.retransmit_slack == 0, 1, self.retransmit_slack)),
            self.o_demand.payload.eq(item.qpn),
            cache.drop_index.eq(index),
            blocked.eq(cached >= self.prefetch_depth),
        ]
        with m.If(self.wake_stb & (self.wake_qpn == item.qpn)):
            m.d.sync += disturbed.eq(1)
        changed = disturbed | (self.wake_stb & (self.wake_qpn == item.qpn))

        def load(m):
            """Take the header that the front holds in READ, if any."""
            m.next = "IDLE"
            with m.If(front.ongoing("READ")):
                m.d.comb += take.eq(1)
                m.d.sync += [item.eq(new_item), source.eq(new_source), place.eq(new_place), hit.eq(new_hit),
                             index.eq(new_index), slot.eq(new_slot), disturbed.eq(new_disturbed | wakes_new)]
                m.next = "JUDGE"

        def end(m):
            """The header is done."""
            m.d.comb += [done.eq(is_header), waits.remove_en.eq(source == Source.WAITING)]

        def refuse(reason):
            m.d.comb += [self.refuse_stb.eq(is_header & ~item.probe), self.refuse_reason.eq(reason.value)]

        # Retirement test of the head just read.
        head = cache.node
        passed = Mux(item.probe, ahead >= head.count, (ahead >= 0) & ((ahead + 1)[:32] >= head.count + slack))
        retire = Signal()
        m.d.comb += retire.eq((cache.left == 0) | (passed & is_header) | forcing)
        report = Signal(REPORT_RETIRE)
        m.d.comb += [
            report.kind.eq(abi.ReportKind.RETIRE.value), report.line.eq(head.line), report.qpn.eq(item.qpn),
            report.generation.eq(item.generation), report.residue.eq(cache.left), report.rsn.eq(head.rsn),
            report.next_rsn.eq(head.rsn + head.count), report.open.eq(cache.open),
            self.o_report.p.entry.eq(report), self.o_report.p.ticket.eq(item.ticket),
        ]
        head_found, head_index = Signal(), Signal.like(index)
        must_wait = Signal()

        with m.FSM(name="back") as back:
            m.d.comb += back_idle.eq(back.ongoing("IDLE"))
            m.d.comb += slow.eq(~back.ongoing("IDLE") & ~back.ongoing("JUDGE") & ~back.ongoing("CLEAR"))
            with m.State("IDLE"):  # waits for a header that was looked up
                m.d.sync += last_known.eq(0)
                load(m)
            with m.State("JUDGE"):  # its node, its list and the list's head are known
                view, start = self.list, head_read.data
                own = last_known & (last_index == index)
                m.d.sync += [
                    open_bits.eq(Mux(own, last.open, cache.open)), left.eq(Mux(own, last.left, cache.left)),
                    is_open.eq((Mux(own, last.open, cache.open) >> slot)[0]),
                    ahead.eq(item.rsn - start.rsn[:24]), floor.eq(start.rsn), retired.eq(start.retired),
                    dead.eq(~view.live | (view.generation != item.generation)), more.eq(view.linked != view.fetched),
                    cached.eq(view.fetched - start.retired), forcing.eq(source == Source.FORCE), must_wait.eq(0),
                    last_known.eq(0),
                ]
                m.next = "CLEAR"
                with m.If(waits.older & is_header):
                    with m.If(source == Source.NEW):
                        m.d.comb += [waits.insert_en.eq(1), self.count_cache_misses.eq(~item.probe)]
                    with m.Else():
                        m.d.comb += waits.put_back_en.eq(1)
                    load(m)
            with m.State("CLEAR"):  # PSN and RSN name the same hole, or not
                matched = hit & check.matches
                at_head = ahead == slot
                with m.If(dead | ((ahead < 0) & is_header)):
                    refuse(abi.Reason.STALE_RSN)
                    with m.If(dead):
                        refuse(abi.Reason.STALE_GENERATION)
                    end(m)
                    load(m)
                with m.Elif(~is_header):
                    m.next = "FIND_HEAD"
                with m.Elif(hit & ~item.probe):
                    m.d.comb += self.count_cache_hits.eq(source == Source.NEW)
                    with m.If(~matched):
                        refuse(abi.Reason.NOT_IN_NODE)
                    with m.Elif(~is_open):
                        refuse(abi.Reason.DUPLICATE)
                    with m.Else():
                        m.d.comb += cache.mark_en.eq(1)
                        m.d.sync += [
                            last.open.eq(cache.mark_open),
                            last.left.eq(cache.mark_left),
                            last_index.eq(index),
                            last_known.eq(1),
                        ]
                    end(m)
                    with m.If(at_head & ~(matched & is_open & (left == 1))):
                        load(m)
                    with m.Else():
                        m.next = "FIND_HEAD"
                with m.Else():
                    m.d.sync += must_wait.eq(more)
                    with m.If(~more):
                        with m.If(~item.probe):
                            refuse(abi.Reason.NOT_IN_NODE)
                        end(m)
                    m.next = "FIND_HEAD"
            with m.State("FIND_HEAD"):  # the node that starts where the list's RSNs start
                m.d.comb += [cache.qpn.eq(item.qpn), cache.generation.eq(item.generation), cache.rsn.eq(floor)]
                m.d.sync += [head_found.eq(cache.hit), head_index.eq(cache.index), last_known.eq(0)]
                m.next = "READ_HEAD"
            with m.State("READ_HEAD"):
                m.d.comb += [cache.read_en.eq(1), cache.read_index.eq(head_index)]
                m.next = "RETIRE"
                with m.If(~head_found):
                    m.next = "WAIT"
                    with m.If(~must_wait | (ahead == 0) & item.probe):
                        m.next = "END"
            with m.State("RETIRE"):  # waits until the report of a finished or passed head is taken
                with m.If(retire):
                    m.d.comb += self.o_report.valid.eq(1)
                    with m.If(self.o_report.ready):
                        m.d.comb += [
                            cache.drop_en.eq(1),
                            cache.drop_index.eq(head_index),
                            head_write.en.eq(1),
                            head_write.addr.eq(item.qpn),
                            head_write.data.rsn.eq(floor + head.count),
                            head_write.data.retired.eq(retired + 1),
                            self.count_nodes_retired.eq(1),
                            self.count_nodes_residue.eq(cache.left != 0),
                        ]
                        m.d.sync += [
                            floor.eq(floor + head.count),
                            retired.eq(retired + 1),
                            ahead.eq(ahead - head.count),
                            cached.eq(cached - 1),
                            forcing.eq(0),
                        ]
                        m.next = "DEMAND"
                with m.Elif(must_wait & ~item.probe & blocked):
                    m.d.sync += forcing.eq(1)   # the header lies beyond all that may be cached
                with m.Elif(must_wait & ~item.probe):
                    m.next = "WAIT"
                with m.Else():
                    m.next = "END"
            with m.State("DEMAND"):  # the list has room for another node
                m.d.comb += self.o_demand.valid.eq(1)
                with m.If(self.o_demand.ready):
                    m.next = "FIND_HEAD"
            with m.State("WAIT"):  # the header must wait for a fetch; the prefetcher is told
                m.d.comb += self.o_demand.valid.eq(1)
                with m.If(self.o_demand.ready):
                    with m.If(source == Source.NEW):
                        m.d.comb += [
                            waits.insert_en.eq(1),
                            waits.insert_awake.eq(changed),
                            self.count_cache_misses.eq(~item.probe),
                        ]
                    with m.Else():
                        m.d.comb += [waits.put_back_en.eq(1), waits.sleep.eq(~changed)]
                    m.next = "IDLE"
            with m.State("END"):  # a probe that waited for all its nodes is done
                with m.If(must_wait):
                    end(m)
                m.next = "IDLE"
