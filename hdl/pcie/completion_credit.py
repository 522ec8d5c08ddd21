"""Credit for the hard block's completion buffer: data and headers of outstanding reads."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract.params import exact_log2
from .tlp import LANES, TAGS, CompletionBeat, ReadTlp

COMPLETION_LINES = 384        # limit of outstanding lines: 24 KiB of the hard block's 32 KiB buffer
COMPLETION_HEADERS = 128      # completions that the buffer holds (PG213)
UNIT_LINES = (1, 2, 4)        # sizes in which the host may split completions, finest first
LONG_BEATS = (None, 3, 4)     # a completion of this many beats crosses a boundary of the next finer unit
TRUST = 64                    # such completions in a row before a unit is relied on
AMOUNT_BITS = 7


class CompletionCredit(wiring.Component):
    """Passes a read request when there is space for all its completions. One request per two cycles.

    The number of completions of a request is the host's choice: it may split at every 64 bytes, and then the headers
    are the scarce resource. Requests count as the number of completions that the host has shown to need: in units of 64
    bytes at first, of 128 or 256 after :data:`TRUST` completions in a row that were not split finer, of a finer unit
    from the first that is. Outstanding requests are counted in every unit, so that a change of the unit needs no
    recount; those that passed before the first finer split may still bring more headers than there is space for, once.
    The hard block then drops a completion, and the read times out.

    With ``straddle`` the headers of lines are not scarce, however the host splits. A line takes 1.33 cycles on a
    link of Gen3 x16 (84 bytes), 1.25 on RC (five quarters of a beat) and one in the card: the buffer is emptied faster
    than it is filled, which PG213 names as the other way to prevent its overflow ("Straddle Option on RC Interface").
    Only completions of up to ten double words come faster than one per cycle, and only the ends of a request
    can be that short. So a request counts as a completion for each end that is not that of a line, and as another for
    every four lines, in case the hard block does not fill its beats: 1.77 cycles for a line would still be enough. A
    request of up to two lines counts as its completions.

    Parameters
    ----------
    straddle : bool

    Members
    -------
    i, o : In/Out(stream.Signature(ReadTlp))
    completion : In(CompletionBeat)
        Completions of any tag.
    completion_valid : In(1)
    """

    i: In(stream.Signature(ReadTlp))
    o: Out(stream.Signature(ReadTlp))
    completion: In(CompletionBeat)
    completion_valid: In(1)

    def __init__(self, *, straddle=False):
        self._straddle = straddle
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        units = range(2 if self._straddle else len(UNIT_LINES))
        amounts = data.ArrayLayout(AMOUNT_BITS, len(units))
        m.submodules.weights = weights = Memory(shape=amounts, depth=TAGS, init=[])
        weights_write, weights_read = weights.write_port(), weights.read_port(domain="comb")
        trusted = Const(0b10, 2) if self._straddle else self._trusted_units(m)

        # A request passes in two steps: weigh, then send.
        used = [Signal(range(COMPLETION_LINES + 1), name=f"used{k}") for k in units]
        needed, weight, returned_weight = Signal(amounts), Signal(amounts), Signal(amounts)
        weighed, send, fits, returned = Signal(), Signal(), Signal(), Signal()
        headers_fit = Signal(len(units))
        head, beat = self.i.p, self.completion
        for k in units:
            back = Mux(returned, returned_weight[k], 0)
            m.d.comb += [
                needed[k].eq(self._piled_up() if self._straddle and k else self._completions(UNIT_LINES[k])),
                headers_fit[k].eq(used[k] + needed[k] <= COMPLETION_HEADERS),
            ]
            m.d.sync += used[k].eq(Mux(fits, used[k] + needed[k] - back, used[k] - back))
        m.d.comb += [
            fits.eq(self.i.valid & ~weighed & (used[0] + needed[0] <= COMPLETION_LINES)
                    & (headers_fit & trusted).any()),
            self.o.valid.eq(weighed), self.o.payload.eq(head),
            send.eq(weighed & self.o.ready), self.i.ready.eq(send),
            weights_write.addr.eq(head.tag), weights_write.data.eq(weight), weights_write.en.eq(send),
            weights_read.addr.eq(beat.tag),
        ]
        m.d.sync += [returned.eq(self.completion_valid & beat.done), returned_weight.eq(weights_read.data)]
        with m.If(fits):
            m.d.sync += [weighed.eq(1), weight.eq(needed)]
        with m.If(send):
            m.d.sync += weighed.eq(0)
        return m

    def _completions(self, lines):
        """Return the number of completions of the request, split at every ``lines`` lines."""
        dwords = LANES * lines
        return (self.i.p.dwords + self.i.p.address[:exact_log2(dwords)] + Const(dwords - 1)) >> exact_log2(dwords)

    def _piled_up(self):
        """Return the number of its completions that may be in the buffer at a time, with straddle."""
        lines, begin = self._completions(1), self.i.p.address[:exact_log2(LANES)]
        end = (begin + self.i.p.dwords)[:exact_log2(LANES)]
        return Mux(lines <= 2, lines, ((lines + 3) >> 2) + begin.any() + end.any())

    def _trusted_units(self, m):
        """Return a bit for each unit that is relied on; the coarsest of them permits most."""
        beat, units = self.completion, len(UNIT_LINES)
        beats = Signal(range(max(LONG_BEATS[1:]) + 1))      # of the current completion, saturated at the largest
        end = Signal(range(LANES * UNIT_LINES[-1]))         # double-word address after it
        top = Signal(range(LANES + 1))
        ended, sound, cut = Signal(), Signal(), Signal()
        for lane in range(LANES):
            with m.If(beat.lanes[lane]):
                m.d.comb += top.eq(lane + 1)
        m.d.sync += [
            ended.eq(self.completion_valid & beat.last), sound.eq(~beat.error),
            cut.eq(~beat.done), end.eq(beat.dword + top),
        ]
        with m.If(self.completion_valid & (beats != LONG_BEATS[-1])):
            m.d.sync += beats.eq(beats + 1)
        with m.If(ended):
            m.d.sync += beats.eq(self.completion_valid)
        runs = [Const(1, 1)]
        for k in range(1, units):
            run = Signal(range(TRUST + 1), name=f"run{k}")
            with m.If(ended & sound & cut & end[:exact_log2(LANES * UNIT_LINES[k])].any()):
                m.d.sync += run.eq(0)
            with m.Elif(ended & sound & (beats >= LONG_BEATS[k]) & (run != TRUST)):
                m.d.sync += run.eq(run + 1)
            runs.append(run == TRUST)
        return Cat(runs)
