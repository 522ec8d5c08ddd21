"""Scan of all QPs for those whose time the wheel does not reach."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import exact_log2
from ..part.stream import Fifo
from .wheel import SLOT_LOG2, TIME_BITS, slots_of

FRACTION_BITS = 9       # of a time, below nanoseconds
OLD_LOG2 = 20           # log2 of the nanoseconds after which a time is long ago: more than the burst of the engine
BYTES_BITS = 13         # of the bytes of a packet on the line
FOUND = 8               # QPs found by the scan that wait for the engine

# Time of a QP's next packet, and the length of its last one. Unless `known` that time is long ago.
TIMES = data.StructLayout({"known": 1, "next": data.StructLayout({"fraction": FRACTION_BITS, "ns": TIME_BITS}),
                           "bytes": BYTES_BITS})


def queues(params):
    """Return the layout of a QP's two lists in the pool and of its state.

    ``waiting``: it is in the wheel. ``blocked``: new data wait for another limit. ``marker``: its packets were
    discarded, and the packet that ends this must be sent.
    """
    index = exact_log2(params.pace_descriptors)
    a_list = data.StructLayout({"some": 1, "head": index, "tail": index})
    return data.StructLayout({"send": a_list, "retransmit": a_list, "waiting": 1, "blocked": 1, "marker": 1})


def sends(state):
    """Return whether a QP has a packet to send."""
    return state.retransmit.some | (state.send.some & ~state.blocked) | state.marker


def is_late(since):
    """Return whether a time is so long ago that it does not matter; ``since``: nanoseconds since then."""
    return ~since[-1] & since[OLD_LOG2:].any()


class Scan(wiring.Component):
    """Reads QP after QP in the cycles in which the engine reads none, and finds those that need its attention:

    * QPs with packets that are not in the wheel, because it does not reach far enough, as soon as it does;
    * QPs whose next time is so long ago that it does not matter, before times repeat;
    * after ``all_stb``, once, all QPs with packets that are not in the wheel.

    With half of the cycles, a scan takes half of the time that the wheel reaches. Found QPs wait in a queue;
    what was read may be outdated then.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    enable : In(1)
    blocked : In(1)
        The memory's port is not available.
    en, qpn : Out
        Read of a QP.
    state, times : In
        One cycle later.
    now : In(27)
    all_stb : In(1)
    o : Out(stream.Signature(params.qpn_width))
    """

    def __init__(self, params):
        self.reach_log2 = SLOT_LOG2 + exact_log2(slots_of(params))
        width = params.qpn_width
        super().__init__({
            "enable": In(1), "blocked": In(1), "en": Out(1), "qpn": Out(width),
            "state": In(queues(params)), "times": In(TIMES), "now": In(TIME_BITS), "all_stb": In(1),
            "o": Out(stream.Signature(width)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.found = found = Fifo(len(self.qpn), FOUND, output_registers=1)
        wiring.connect(m, found.o, wiring.flipped(self.o))
        read, read_qpn = Signal(), Signal.like(self.qpn)
        judged, judged_qpn = Signal(), Signal.like(self.qpn)
        hit, hit_qpn = Signal(), Signal.like(self.qpn)
        left = Signal(len(self.qpn) + 1)        # QPs of the scan that finds all
        # Of the QP that is judged: its next time, relative to now, and whether it has packets, and may send one.
        known, ahead, since = Signal(), Signal(TIME_BITS), Signal(TIME_BITS)
        may, idle = Signal(), Signal()
        state, times = self.state, self.times
        m.d.comb += [
            self.en.eq(self.enable & ~self.blocked & ~found.level[1:].any()),   # three others may be on their way
            found.i.valid.eq(hit), found.i.payload.eq(hit_qpn),
        ]
        near = ~known | ahead[-1] | ~ahead[self.reach_log2:].any()
        m.d.sync += [
            read.eq(self.en), read_qpn.eq(self.qpn), judged.eq(read), judged_qpn.eq(read_qpn),
            known.eq(times.known), ahead.eq(times.next.ns - self.now), since.eq(self.now - times.next.ns),
            may.eq(~state.waiting & sends(state)),
            idle.eq(~state.waiting & (state.send.some | state.retransmit.some) & left.any()),
            hit.eq(judged & ((may & near) | (known & is_late(since)) | idle)), hit_qpn.eq(judged_qpn),
        ]
        with m.If(self.en):
            m.d.sync += self.qpn.eq(self.qpn + 1)
        with m.If(self.all_stb):
            m.d.sync += left.eq(1 << len(self.qpn))
        with m.Elif(read & left.any()):
            m.d.sync += left.eq(left - 1)
        return m
