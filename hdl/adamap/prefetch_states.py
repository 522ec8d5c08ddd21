"""What the prefetcher does, state by state, with the list whose turn it is."""

from amaranth.hdl import Mux, Signal

from .ahead import AheadKind
from .control import ControlKind
from .list_row import Job


def prefetch_states(m, prefetch, parts):
    """Add the states to the module ``m`` of a :class:`~weft.hdl.adamap.prefetch.Prefetch`.

    From IDLE a list is chosen; its row is read (ROW); then comes what the row was read for
    (:class:`~weft.hdl.adamap.list_row.Job`), with IDLE behind it. ``parts`` are the
    :class:`~weft.hdl.adamap.prefetch_parts.PrefetchParts`.
    """
    work, row, reach, fetches, arrival = parts.work, parts.row, parts.reach, parts.fetches, parts.arrival
    turn_out, broken, qpn, job, slot, lines = (
        parts.turn_out, parts.broken, parts.qpn, parts.job, parts.slot, parts.lines)
    filling, few, wanted, of_control = parts.filling, parts.few, parts.wanted, parts.of_control
    cache, step, op, view, again = prefetch.cache, prefetch.step, prefetch.i_control.p, row.o, work.i[0]
    dying = Signal()    # the QP being destroyed is dead already; its fetches are not all back
    with m.FSM():
        with m.State("IDLE"):  # waits for a control operation, a node, or a list to look at
            m.d.comb += [turn_out.at_rest.eq(1), prefetch.idle.eq(
                fetches.quiet & work.empty & ~prefetch.i_demand.valid & ~prefetch.post_stb & ~again.valid
            )]
            m.d.sync += filling.eq(0)
            with m.If(prefetch.i_control.valid & ~(dying & of_control)):
                m.d.comb += row.start.eq(1)
                m.d.sync += [qpn.eq(op.qpn), job.eq(Job.CONTROL)]
                m.next = "ROW"
            with m.Elif(fetches.done):
                m.d.comb += row.start.eq(1)
                m.d.sync += [qpn.eq(fetches.done_qpn), slot.eq(fetches.done_slot), job.eq(Job.LAND)]
                m.next = "ROW"
            with m.Elif(work.o.valid):
                m.d.comb += [row.start.eq(1), work.o.ready.eq(1)]
                m.d.sync += [qpn.eq(work.o.payload), job.eq(Job.LOOK)]
                m.next = "ROW"
        with m.State("ROW"):  # waits for the row of the list
            m.d.comb += [arrival.start.eq(row.soon & (job == Job.LAND)),
                         turn_out.read.eq(row.kept & (job == Job.TURN_OUT))]
            with m.If(row.kept):
                with m.Switch(job):
                    for case in Job:
                        with m.Case(case):
                            m.next = "ARRIVAL" if case is Job.LAND else case.name
        with m.State("CONTROL"):  # starts, ends or shows a list
            m.d.comb += prefetch.i_control.ready.eq(1)
            m.next = "IDLE"
            with m.Switch(op.kind):
                with m.Case(ControlKind.CREATE):
                    m.d.comb += [work.forget_en.eq(1), work.forget_qpn.eq(qpn)]
                with m.Case(ControlKind.QUERY):
                    m.d.sync += [prefetch.query_ahead.eq(prefetch.ahead.count), prefetch.query_cached.eq(cache.cached)]
                with m.Default():
                    m.d.comb += [step.valid.eq(1), prefetch.i_control.ready.eq(step.ready & ~of_control)]
                    m.d.sync += [dying.eq(of_control), slot.eq(fetches.kept_slot)]
                    with m.If(~step.ready):
                        m.next = "CONTROL"
                    with m.Elif(fetches.kept):
                        m.next = "FORGET"
        with m.State("LOOK"):  # issues a fetch if the list needs one and everything is there for it
            m.next = "IDLE"
            with m.If(fetches.kept):
                m.d.comb += arrival.start.eq(1)
                m.d.sync += slot.eq(fetches.kept_slot)
                m.next = "ARRIVAL"
            with m.Elif(wanted & ~reach.inside):
                m.d.comb += broken.start.eq(1)
                m.next = "BREAK"
            with m.Elif(wanted & fetches.free):
                m.d.sync += lines.eq(Mux(view.adjacent, reach.lines, 1))
                m.next = "ISSUE"
            with m.Elif(wanted & few & fetches.loose):
                m.d.sync += slot.eq(fetches.loose_slot)
                m.next = "MAKE_PLACE"
            with m.Elif(wanted & (view.waiting | ~fetches.quiet)):
                m.next = "AGAIN"
        with m.State("MAKE_PLACE"):  # forgets what another list's read brought
            m.d.comb += fetches.finish_en.eq(1)
            m.next = "AGAIN"
        with m.State("FORGET"):  # forgets what the last read of a dead list brought
            m.d.comb += fetches.finish_en.eq(1)
            m.next = "IDLE"
        with m.State("ISSUE"):  # waits for the read engine
            m.d.comb += prefetch.o_line.valid.eq(1)
            with m.If(prefetch.o_line.ready):
                m.d.comb += [prefetch.count_prefetches.eq(1), fetches.start_en.eq(1)]
                m.next = "IDLE"
        with m.State("ARRIVAL"):  # waits for the blocks of a read to land; then the list may want more
            m.d.comb += [
                step.valid.eq(arrival.offers), step.p.kind.eq(AheadKind.LAND), step.p.block.eq(arrival.found),
                step.p.adjacent.eq(fetches.node.next_adjacent), fetches.finish_en.eq(arrival.finished),
                broken.reason.eq(arrival.reason),
            ]
            with m.If(arrival.homeless):
                m.next = "IDLE"
                with m.If(turn_out.starts):
                    m.next = "TURN_OUT"
            with m.If(arrival.finished):
                m.d.sync += [filling.eq(1), job.eq(Job.LOOK)]
                with m.If(arrival.dead):
                    m.next = "IDLE"
                with m.Elif(arrival.reason != 0):
                    m.d.comb += broken.start.eq(1)
                    m.next = "BREAK"
                with m.Else():
                    m.d.comb += row.start.eq(1)
                    m.next = "ROW"
        with m.State("TURN_OUT"):  # waits for an entry that another list gives up
            m.d.comb += [
                step.valid.eq(turn_out.back), step.p.kind.eq(AheadKind.BACK), step.p.block.eq(cache.peek_block),
                fetches.finish_en.eq(turn_out.release_en & fetches.kept),   # what was read behind it is forgotten
            ]
            m.d.sync += slot.eq(fetches.kept_slot)
            with m.If(turn_out.reads):
                m.d.comb += row.start.eq(1)
                m.d.sync += [qpn.eq(turn_out.whose), job.eq(Job.TURN_OUT)]
                m.next = "ROW"
            with m.If(turn_out.release_en):
                m.next = "READ_AGAIN"
            with m.Elif(turn_out.ends):
                m.d.sync += qpn.eq(turn_out.hungry)
                m.next = "AGAIN"
                with m.If(turn_out.given_up):
                    m.next = "IDLE"
        with m.State("READ_AGAIN"):  # waits for a place in the work list, to keep what was taken back
            m.d.comb += again.valid.eq(1)
            with m.If(again.ready):
                m.d.sync += qpn.eq(turn_out.hungry)
                m.next = "AGAIN"
        with m.State("BREAK"):  # waits for the list to end, and for all who hear of it
            m.d.comb += step.valid.eq(broken.end)
            with m.If(broken.done):
                m.next = "IDLE"
        with m.State("AGAIN"):  # waits for a place in the work list
            m.d.comb += again.valid.eq(1)
            with m.If(again.ready):
                m.next = "IDLE"
