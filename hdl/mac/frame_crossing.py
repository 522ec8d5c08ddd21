"""Clock-domain crossing of frames: each arrives complete or is dropped."""

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, Mux, ResetSignal, Shape, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out

from ..contract.params import exact_log2
from ..part.layouts import Beat
from ..part.stages import SkidBuffer

LEVEL_LAG = 4             # beats by which the level of the FIFO may lag
QUIET_LOG2 = 5            # cycles without a frame after a reset of either side
EMPTYING = range(16, 24)  # the cycles of them in which the FIFOs are cleared; the reader completes its frame before


class FrameCrossing(wiring.Component):
    """Frames from clock domain ``write`` to clock domain ``read``, one beat per cycle of the slower clock.

    The domains are unrelated, and either may be reset at any time, for at least 16 cycles of the slower
    clock. Beats go through a FIFO with Gray pointers. A frame that has begun at ``o`` always ends: if its rest is
    lost, because a side is reset, it ends with ``error``, and so does a frame of more than ``frame_beats`` beats, after
    that number. Every frame whose last beat was accepted at ``i`` either leaves whole or is counted.

    With ``whole`` a frame is offered when all of it is in the FIFO, so it leaves without a gap for a reader of any
    speed: store and forward, at the cost of the time in which its beats come. A threshold would cost less, but it is
    correct only for a known ratio of the clocks and a writer that never pauses. A frame with ``error``, or one that is
    too long, is dropped: it takes the reader a cycle per beat. With ``drop`` the input never waits, and a frame for
    which there may be no space is dropped when it begins.

    A reset of the writing block only (a ``ResetInserter``), not of its clock domain, empties the FIFO as well; the
    reader must be held until ``quiet`` falls, or it may cut a frame.

    Parameters
    ----------
    depth, frame_beats : int
        Beats of the FIFO, a power of two, and of the longest frame.
    whole, drop : bool
    shape : ShapeLike
        Of a beat: at least the fields of :class:`~weft.hdl.part.layouts.Beat`. Further fields are valid in a frame's
        first beat.

    Members
    -------
    i : In(stream.Signature(shape))
        Domain ``write``.
    o : Out(stream.Signature(shape))
        Domain ``read``; no combinational path from ``ready``.
    enable : In(1)
        Domain ``write``: while low, frames that begin are dropped.
    dropped : Out(1)
        Domain ``write``: a frame ended that does not leave whole, for other reasons than its ``error``.
    too_long : Out(1)
        Domain ``write``, with ``dropped``: it had too many beats.
    quiet : Out(1)
        Domain ``write``: a side was reset, and no frame is accepted yet.
    read_reset : Out(1)
        Domain ``write``: the reader is in reset.
    empty : Out(1)
        Domain ``write``: the FIFO is empty, and no frame is coming in.
    hold : In(1)
        Domain ``read``: while high no frame begins at ``o``, except one that has begun inside.
    sending : Out(1)
        Domain ``read``: a frame is being sent. Once low with ``hold``, it stays low.
    aborted : Out(1)
        Domain ``read``: a frame was ended with ``error`` because of a reset.

    Raises
    ------
    ValueError
        If the FIFO does not hold the longest frame, and a second one with ``drop``.
    """

    def __init__(self, *, depth, frame_beats, whole, drop, shape=Beat):
        exact_log2(depth)
        if depth < (2 * frame_beats + LEVEL_LAG if drop else frame_beats):
            raise ValueError(f"a FIFO of {depth} beats does not hold {1 + drop} frames of {frame_beats}")
        self._depth, self._frame_beats, self._whole, self._drop = depth, frame_beats, whole, drop
        self._shape = shape
        super().__init__({
            "i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)),
            "enable": In(1), "dropped": Out(1), "too_long": Out(1), "quiet": Out(1), "read_reset": Out(1),
            "empty": Out(1), "hold": In(1), "sending": Out(1), "aborted": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.domains.fifo = ClockDomain(local=True)
        m.d.comb += ClockSignal("fifo").eq(ClockSignal("write"))
        beats = AsyncFIFO(width=Shape.cast(self._shape).width, depth=self._depth, w_domain="fifo", r_domain="read")
        m.submodules.beats = beats
        ended, forgotten = self._write(m, beats)
        if self._whole:
            m.submodules.ends = ends = AsyncFIFO(width=1, depth=self._depth, w_domain="fifo", r_domain="read")
            m.d.comb += [ends.w_en.eq(ended), ends.w_data.eq(forgotten)]
            self._read(m, beats, ends)
        else:
            self._read(m, beats, None)
        return m

    def _write(self, m, beats):
        """Write the beats of frames into their FIFO.

        Return two signals: the first is high for one cycle at each end of a frame in the FIFO; the second shows in
        that cycle whether the frame must be dropped.
        """
        quiet, waited = self.quiet, Signal(QUIET_LOG2)
        m.submodules.reader_reset_cdc = FFSynchronizer(ResetSignal("read"), self.read_reset, o_domain="write", init=1)
        empty_fifos = Signal()
        m.d.comb += [quiet.eq(~waited.all()), ResetSignal("fifo").eq(empty_fifos)]
        m.d.write += empty_fifos.eq((waited >= EMPTYING.start) & (waited < EMPTYING.stop))
        with m.If(self.read_reset):
            m.d.write += waited.eq(0)
        with m.Elif(quiet):
            m.d.write += waited.eq(waited + 1)

        inside, admitted, long, space = Signal(), Signal(), Signal(), Signal()
        beat_index = Signal(range(self._frame_beats))
        take, cut, ended, forgotten = Signal(), Signal(), Signal(2), Signal(2)
        i = self.i
        if self._drop:
            m.d.write += space.eq(beats.w_level <= self._depth - self._frame_beats - LEVEL_LAG)
        m.d.comb += [
            take.eq(~quiet & Mux(inside, admitted, self.enable & (space if self._drop else 1))),
            cut.eq((beat_index == self._frame_beats - 1) & ~i.p.last),
            i.ready.eq(1 if self._drop else ~take | beats.w_rdy),
            beats.w_en.eq(i.valid & take), beats.w_data.eq(i.payload),
            self.empty.eq((beats.w_level == 0) & ~inside & (ended == 0) & ~i.valid),
        ]
        with m.If(cut):
            written = Signal(self._shape)
            m.d.comb += [written.eq(i.payload), written.last.eq(1), written.error.eq(1), beats.w_data.eq(written)]
        # The end of a frame is passed on two cycles after its last beat, so that it cannot overtake it.
        m.d.write += [ended.eq((ended << 1) | (beats.w_en & beats.w_rdy & (i.p.last | cut))),
                      forgotten.eq((forgotten << 1) | i.p.error | cut)]
        with m.If(i.valid & i.ready):
            m.d.comb += [self.dropped.eq(i.p.last & ~take), self.too_long.eq(i.p.last & long)]
            m.d.write += [inside.eq(~i.p.last), admitted.eq(take & ~cut), long.eq((long | (take & cut)) & ~i.p.last),
                          beat_index.eq(Mux(i.p.last, 0, beat_index + ~cut))]
        with m.If(quiet):
            m.d.write += admitted.eq(0)
        return ended[1], forgotten[1]

    def _read(self, m, beats, ends):
        writer_reset, emptied, seen = Signal(), Signal(), Signal()
        m.submodules.writer_reset_cdc = FFSynchronizer(ResetSignal("write"), writer_reset, o_domain="read", init=1)
        m.submodules.emptied_cdc = FFSynchronizer(beats.r_rst, emptied, o_domain="read", init=1)
        inside, take, goes, beat = Signal(), Signal(), Signal(), Signal(self._shape)
        forget, forgetting = Signal(), Signal()
        m.submodules.skid = skid = DomainRenamer("read")(SkidBuffer(self._shape))
        out = skid.i
        wiring.connect(m, skid.o, wiring.flipped(self.o))
        m.d.comb += [beat.eq(beats.r_data), out.valid.eq(take & ~forget), out.payload.eq(beat),
                     self.sending.eq(inside | skid.o.valid)]
        running, stop = Signal(), Signal()
        m.d.comb += stop.eq(writer_reset | emptied | ~running)
        with m.If(~stop):
            m.d.comb += [take.eq(beats.r_rdy & (inside | (~self.hold & (ends.r_rdy if ends else 1)))),
                         goes.eq(take & (out.ready | forget)), beats.r_en.eq(goes)]
            if ends:
                m.d.comb += [ends.r_en.eq(goes & ~inside), forget.eq(Mux(inside, forgetting, ends.r_data))]
            with m.If(goes):
                m.d.read += [inside.eq(~beat.last), forgetting.eq(forget)]
        with m.Elif(inside):                                # in the same cycle: the MAC must not see a gap
            m.d.comb += [out.valid.eq(~forgetting), out.p.empty.eq(0), out.p.last.eq(1), out.p.error.eq(1),
                         self.aborted.eq(out.ready & ~forgetting)]
            with m.If(out.ready):
                m.d.read += inside.eq(0)
        # After a reset of either side the FIFOs are cleared; their contents are invalid until that was observed.
        with m.If(writer_reset):
            m.d.read += [running.eq(0), seen.eq(0)]
        with m.Elif(emptied):
            m.d.read += [running.eq(0), seen.eq(1)]
        with m.Elif(seen & ~inside):
            m.d.read += [running.eq(1), seen.eq(0)]
