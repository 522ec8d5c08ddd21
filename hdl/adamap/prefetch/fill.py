"""Fill of the head cache with the blocks of a read, one after the other."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ..cache.cached import index_width
from .fetches import LINES, VERDICT, fetch_layout
from .list_state import list_view


class FillDecision(wiring.Component):
    """Decision about a block for which a cache entry was requested. Combinational.

    Kept as a block because per-module mapping trades depth for area (docs/development.md, "Size and longest paths"):
    the cache waits for its outputs.

    Members
    -------
    here : In(1)
        There is a block.
    other : In(1)
        It is not the list's next one, or not wanted.
    bad : In(1)
        It is damaged, of another list, or could not be read.
    ends, more : In(1)
        It has a null pointer; but there is a successor by now.
    taken : In(1)
        It has an entry.
    fill_ready, step_ready : In(1)
        Cache and table accept a node.
    breaks, grew : Out(1)
        The list breaks; the block is read again.
    fill_request, fills : Out(1)
        A step is requested from the table; the node fills the entry.
    releases : Out(1)
        Its entry is released.
    """

    def __init__(self):
        super().__init__({
            **dict.fromkeys(("here", "other", "bad", "ends", "more", "taken", "fill_ready", "step_ready"), In(1)),
            **dict.fromkeys(("breaks", "grew", "fill_request", "fills", "releases"), Out(1)),
        })

    def elaborate(self, platform):
        m = Module()
        sound = Signal()
        m.d.comb += [
            self.breaks.eq(~self.other & self.bad), self.grew.eq(~self.other & ~self.bad & self.ends & self.more),
            sound.eq(~self.other & ~self.bad & ~(self.ends & self.more)),
            self.fill_request.eq(self.here & sound & self.taken & self.fill_ready),
            self.fills.eq(self.fill_request & self.step_ready), self.releases.eq(self.here & self.taken & ~sound),
        ]
        return m


class Fill(wiring.Component):
    """Fills the cache with the blocks of a read: each is checked, and fills an entry if it is the next one of its list.

    Four cycles per block, the first one in the third cycle after ``start``; more while cache or table do not accept. At
    the first block that is not the list's next one, that breaks it, that must be read again, or that finds no entry
    and is not the read's first, the rest is discarded. A first one that finds no entry ends the fill at once
    (``no_entry``).

    Parameters
    ----------
    params : CardParams

    Members
    -------
    start : In(1)
        The read that :class:`~weft.hdl.adamap.prefetch.fetches.Fetches` shows from the next cycle on is complete.
    list : In
        Its list, from the second cycle after ``start`` on; it continues with ``found`` after a fill.
    posted : In(1)
        More nodes were linked since its row was read; a cycle late.
    fetch, pointed, verdict, error, part
        As for ``Fetches``.
    may_take, free_index : In
        An entry that the list may have.
    reserve_en, release_en, entry : Out
        Reserve and release it.
    follows : In(1)
        The RSN of the block is the next one of the list.
    fill_ready, step_ready : In(1)
        Cache and table of the nodes ahead accept a node.
    fill_request, fills, found : Out
        Request to them; both accept; the list continues with block ``found``.
    no_entry : Out(1)
        No entry for the first block, which will be kept.
    finished : Out(1)
        The read is finished. ``destroyed``: its list does not exist any more; ``reason``: why it breaks, or 0.
    """

    def __init__(self, params: CardParams):
        self.params = params
        index, block = index_width(params), params.block_bits
        super().__init__({
            "start": In(1), "list": In(list_view(params)), "posted": In(1),
            "fetch": In(fetch_layout(params)), "pointed": In(block), "verdict": In(VERDICT), "error": In(1),
            "part": Out(range(LINES)),
            "may_take": In(1), "free_index": In(index), "reserve_en": Out(1), "release_en": Out(1), "entry": Out(index),
            "follows": In(1), "fill_ready": In(1), "step_ready": In(1),
            "fill_request": Out(1), "fills": Out(1), "found": Out(block),
            "no_entry": Out(1), "finished": Out(1), "destroyed": Out(1), "reason": Out(8),
        })

    def elaborate(self, platform):
        m = Module()
        fetch, part, of = self.fetch, self.part, self.list
        bad, ends = Signal(), Signal()      # `bad`: also if it does not follow; `ends`: it has no successor
        other = Signal()                    # the block is not the next one of the list; a cycle late
        taken = Signal()                    # there is an entry for it
        given_up = Signal()                 # the rest of the read is not wanted
        final = Signal()                    # the block is the read's last one
        more = Signal()                     # it has a successor according to the list's row
        # Inputs are registered a cycle before the decision.
        m.d.comb += self.destroyed.eq(~of.live | (of.generation != fetch.generation))
        m.d.sync += [
            other.eq(self.destroyed | (of.block != (fetch.block + part)[:self.params.block_bits])),
            final.eq(part + 1 == fetch.lines), more.eq(of.ahead != part + 1),
            self.found.eq(self.pointed), ends.eq(self.verdict.ends), bad.eq(self.verdict.bad | ~self.follows),
        ]
        m.submodules.decision = decision = FillDecision()
        m.d.comb += [
            decision.other.eq(other | given_up), decision.bad.eq(self.error | bad), decision.ends.eq(ends),
            decision.more.eq(more | self.posted), decision.taken.eq(taken), decision.fill_ready.eq(self.fill_ready),
            decision.step_ready.eq(self.step_ready), self.fill_request.eq(decision.fill_request),
            self.fills.eq(decision.fills),
            self.release_en.eq(decision.releases),
        ]
        with m.FSM():
            with m.State("IDLE"):  # waits for a read
                with m.If(self.start):
                    m.d.sync += [part.eq(0), given_up.eq(0), self.reason.eq(0)]
                    m.next = "SETTLE"
            with m.State("SETTLE"):  # waits for the block to be read
                m.next = "CHECK"
            with m.State("CHECK"):  # reserves an entry for it
                m.d.comb += self.reserve_en.eq(self.may_take)
                m.d.sync += [taken.eq(self.may_take), self.entry.eq(self.free_index)]
                m.next = "FILL"
            with m.State("FILL"):  # fills the entry, or discards the rest
                m.d.comb += decision.here.eq(1)
                m.d.sync += given_up.eq(1)
                m.next = "NEXT"
                with m.If(final):
                    m.next = "FINISHED"
                with m.If(decision.breaks):
                    m.d.sync += self.reason.eq(Mux(self.error, abi.Reason.DMA_ERROR.value, abi.Reason.BAD_NODE.value))
                # if it was the last one when it was read, its pointer has changed since
                with m.Elif(decision.grew):
                    with m.If(~final | ~fetch.all):
                        m.d.sync += self.reason.eq(abi.Reason.BAD_POINTER.value)
                with m.Elif(~decision.other & taken):
                    m.d.sync += given_up.eq(0)
                    with m.If(~decision.fills):
                        m.next = "FILL"
                with m.Elif(~decision.other & (part == 0)):      # a further one is read again when there is space
                    m.d.comb += self.no_entry.eq(1)
                    m.next = "IDLE"
            with m.State("NEXT"):  # goes to the next block of the read
                m.d.sync += part.eq(part + 1)
                m.next = "SETTLE"
            with m.State("FINISHED"):  # reports the end of the read
                m.d.comb += self.finished.eq(1)
                m.next = "IDLE"
        return m
