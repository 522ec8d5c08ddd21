"""AXI-Stream edges of a MAC to and from streams of :class:`~weft.hdl.board.frame_crossing.FrameBeat`."""


def frames_of(m, axis, frames):
    """Give what the source ``axis`` offers to the input stream ``frames``."""
    m.d.comb += [
        frames.valid.eq(axis.tvalid), frames.p.data.eq(axis.tdata), frames.p.keep.eq(axis.tkeep),
        frames.p.last.eq(axis.tlast), frames.p.error.eq(axis.tuser[0]), axis.tready.eq(frames.ready),
    ]


def axis_of(m, frames, axis):
    """Give what the output stream ``frames`` offers to the sink ``axis``."""
    m.d.comb += [
        axis.tvalid.eq(frames.valid), axis.tdata.eq(frames.p.data), axis.tkeep.eq(frames.p.keep),
        axis.tlast.eq(frames.p.last), axis.tuser.eq(frames.p.last & frames.p.error), frames.ready.eq(axis.tready),
    ]
