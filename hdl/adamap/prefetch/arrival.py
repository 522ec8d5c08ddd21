"""Fill of the head cache with the blocks that a read brought, one after the other."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import CardParams
from ..cache.cached import index_width
from .fetches import LINES, VERDICT, fetch_layout
from .list_row import list_view


class Landing(wiring.Component):
    """Decides about a block for which an entry of the cache was asked. Combinational.

    A block of its own, as :class:`~weft.hdl.part.select.IndexOf` is: the cache waits for its answer.

    Members
    -------
    here : In(1)
        There is one.
    other : In(1)
        It is not the list's next one, or not wanted.
    bad : In(1)
        It is damaged, of another list, or could not be read.
    ends, more : In(1)
        It names no successor; but there is one by now.
    taken : In(1)
        It has an entry.
    fill_ready, step_ready : In(1)
        Cache and table take a node.
    breaks, grew : Out(1)
        The list breaks; the block is read again.
    offers, lands : Out(1)
        The table is asked for a step; the node enters the cache.
    releases : Out(1)
        Its entry is given back.
    """

    def __init__(self):
        super().__init__({
            **dict.fromkeys(("here", "other", "bad", "ends", "more", "taken", "fill_ready", "step_ready"), In(1)),
            **dict.fromkeys(("breaks", "grew", "offers", "lands", "releases"), Out(1)),
        })

    def elaborate(self, platform):
        m = Module()
        sound = Signal()
        m.d.comb += [
            self.breaks.eq(~self.other & self.bad), self.grew.eq(~self.other & ~self.bad & self.ends & self.more),
            sound.eq(~self.other & ~self.bad & ~(self.ends & self.more)),
            self.offers.eq(self.here & sound & self.taken & self.fill_ready),
            self.lands.eq(self.offers & self.step_ready), self.releases.eq(self.here & self.taken & ~sound),
        ]
        return m


class Arrival(wiring.Component):
    """Goes through the blocks of a read: each is checked, and lands in the cache if it is where its list goes on.

    Four cycles per block, the first one in the third cycle after ``start``; more while cache or table take none. At the
    first block that is not the list's next one, that breaks it, that is to be read again, or that finds no entry and is
    not the read's first, the rest is given up. A first one that finds no entry ends it at once: it is ``homeless``.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    start : In(1)
        The read that :class:`~weft.hdl.adamap.prefetch.fetches.Fetches` shows from the next cycle on has come.
    list : In
        Its list, from the second cycle after ``start`` on; it goes on with ``found`` when a node lands.
    posted : In(1)
        More nodes were linked since its row was read; a cycle late.
    fetch, pointed, verdict, error, part
        As ``Fetches`` has them.
    may_take, free_index : In
        An entry that the list may have.
    reserve_en, release_en, entry : Out
        It is taken, and given back.
    follows : In(1)
        The RSN of the block is the next one of the list.
    fill_ready, step_ready : In(1)
        Cache and table of the nodes ahead take a node.
    offers, lands, found : Out
        They are asked to; they do; the list goes on with block ``found``.
    homeless : Out(1)
        No entry for the first block, which goes to be kept.
    finished : Out(1)
        The read is done with. Then ``dead`` says that its list is no longer, and ``reason`` why it breaks, or 0.
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
            "offers": Out(1), "lands": Out(1), "found": Out(block),
            "homeless": Out(1), "finished": Out(1), "dead": Out(1), "reason": Out(8),
        })

    def elaborate(self, platform):
        m = Module()
        fetch, part, of = self.fetch, self.part, self.list
        bad, ends = Signal(), Signal()      # the block, if it does not follow either; there is none behind it
        other = Signal()                    # the list does not go on with the block; a cycle late
        taken = Signal()                    # there is an entry for it
        given_up = Signal()                 # what is left of the read is not wanted
        final = Signal()                    # the block is the read's last one
        more = Signal()                     # there is one behind it, as the list's row says
        # What arrived is looked at a cycle before it is taken.
        m.d.comb += self.dead.eq(~of.live | (of.generation != fetch.generation))
        m.d.sync += [
            other.eq(self.dead | (of.block != (fetch.block + part)[:self.params.block_bits])),
            final.eq(part + 1 == fetch.lines), more.eq(of.ahead != part + 1),
            self.found.eq(self.pointed), ends.eq(self.verdict.ends), bad.eq(self.verdict.bad | ~self.follows),
        ]
        m.submodules.landing = landing = Landing()
        m.d.comb += [
            landing.other.eq(other | given_up), landing.bad.eq(self.error | bad), landing.ends.eq(ends),
            landing.more.eq(more | self.posted), landing.taken.eq(taken), landing.fill_ready.eq(self.fill_ready),
            landing.step_ready.eq(self.step_ready), self.offers.eq(landing.offers), self.lands.eq(landing.lands),
            self.release_en.eq(landing.releases),
        ]
        with m.FSM():
            with m.State("IDLE"):  # waits for a read
                with m.If(self.start):
                    m.d.sync += [part.eq(0), given_up.eq(0), self.reason.eq(0)]
                    m.next = "SETTLE"
            with m.State("SETTLE"):  # lets the block come out
                m.next = "CHECK"
            with m.State("CHECK"):  # takes an entry for it
                m.d.comb += self.reserve_en.eq(self.may_take)
                m.d.sync += [taken.eq(self.may_take), self.entry.eq(self.free_index)]
                m.next = "LAND"
            with m.State("LAND"):  # lands it, or gives up the rest
                m.d.comb += landing.here.eq(1)
                m.d.sync += given_up.eq(1)
                m.next = "NEXT"
                with m.If(final):
                    m.next = "FINISHED"
                with m.If(landing.breaks):
                    m.d.sync += self.reason.eq(Mux(self.error, abi.Reason.DMA_ERROR.value, abi.Reason.BAD_NODE.value))
                with m.Elif(landing.grew):      # if it was the last one when it was read, its pointer has changed since
                    with m.If(~final | ~fetch.all):
                        m.d.sync += self.reason.eq(abi.Reason.BAD_POINTER.value)
                with m.Elif(~landing.other & taken):
                    m.d.sync += given_up.eq(0)
                    with m.If(~landing.lands):
                        m.next = "LAND"
                with m.Elif(~landing.other & (part == 0)):      # a further one is read again when there is space
                    m.d.comb += self.homeless.eq(1)
                    m.next = "IDLE"
            with m.State("NEXT"):  # goes to the next block that came
                m.d.sync += part.eq(part + 1)
                m.next = "SETTLE"
            with m.State("FINISHED"):  # tells that the read is done with
                m.d.comb += self.finished.eq(1)
                m.next = "IDLE"
        return m
