"""Timing wheel: QPs by the time at which they are due."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract.params import PACE_SLOT_LOG2 as SLOT_LOG2
from ..contract.params import exact_log2
from ..part.stream import Fifo

TIME_BITS = 27          # of a time in nanoseconds; differences are signed
SLOT_BITS = TIME_BITS - SLOT_LOG2
SLOTS_MIN = 64


def slots_of(params):
    """Return the number of slots: they reach twice as far as a scan of all QPs takes."""
    return max(SLOTS_MIN, params.qps // 4)


class Wheel(wiring.Component):
    """QPs that wait, in a list for each slot of 64 ns, and then in a queue of those that are due.

    A QP leaves its slot when the slot has ended, never earlier: within three cycles, one more for each QP that is ahead
    of it in the same slot, and two for each one that is entered meanwhile. QPs of a slot leave last in, first out. The
    slots repeat after ``slots``; a QP whose slot is further away than that is not entered.

    One QP can be entered every two cycles, and none waits for the queue. A QP must not be entered again before it has
    left. After a reset the slots are cleared, one per cycle; then ``ready`` goes high. ``stb`` must be low until then.

    Parameters
    ----------
    params : CardParams
    slots : int, optional
        Number of slots, if it is not :func:`slots_of` the parameters.
    slot_bits : int, optional
        Bits of the number of a slot.

    Members
    -------
    now : In(slot_bits)
        Number of the slot in progress: time divided by 64 ns.
    stb, qpn, slot, at_once : In
        Enter a QP; ``at_once``, or if the slot has ended, it is due.
    far : Out(1)
        Combinational from ``slot``: it is too far away; the QP is not entered.
    ready : Out(1)
    o : Out(stream.Signature(params.qpn_width))
        QPs that are due, 2 cycles after they have left their slots.
    """

    def __init__(self, params, slots=None, slot_bits=SLOT_BITS):
        self.qps, self.slots = params.qps, slots or slots_of(params)
        width = params.qpn_width
        super().__init__({
            "now": In(slot_bits), "stb": In(1), "qpn": In(width), "slot": In(slot_bits), "at_once": In(1),
            "far": Out(1), "ready": Out(1), "o": Out(stream.Signature(width)),
        })

    def elaborate(self, platform):
        m = Module()
        width, low = len(self.qpn), exact_log2(self.slots)
        link = data.StructLayout({"some": 1, "qpn": width})     # a QP, if there is one
        m.submodules.heads = heads = Memory(shape=link, depth=self.slots, init=[])
        m.submodules.links = links = Memory(shape=link, depth=self.qps, init=[])
        m.submodules.due = due = Fifo(width, self.qps + 1)
        head, head_write = heads.read_port(), heads.write_port()
        after, after_write = links.read_port(), links.write_port()
        wiring.connect(m, due.o, wiring.flipped(self.o))
        cursor = Signal.like(self.now)      # oldest slot that is not empty for certain
        chain = Signal(link)            # rest of the slot that ended last
        ahead = Signal.like(self.now)       # from the cursor to the slot of the QP to enter
        past, inside, moves, ended = Signal(), Signal(), Signal(), Signal()
        # The first QP of a slot was read, of the slot of a new QP or of one that ended.
        enters, loads, new, slot = Signal(), Signal(), Signal(width), Signal(low)
        m.d.comb += [
            ahead.eq(self.slot - cursor), past.eq(ahead[-1] | self.at_once),
            self.far.eq(~past & ahead[low:].any()), inside.eq(self.stb & ~past & ~self.far),
            # The queue has space for every QP.
            due.i.valid.eq((self.stb & past) | chain.some), due.i.payload.eq(Mux(self.stb & past, self.qpn, chain.qpn)),
            moves.eq(chain.some & ~(self.stb & past)),
            ended.eq(~(self.stb | enters | loads) & (~chain.some | ~after.data.some) & (cursor != self.now)),
            head.addr.eq(Mux(self.stb, self.slot, cursor)),
            head_write.addr.eq(Mux(enters, slot, cursor)), head_write.en.eq(enters | ended | ~self.ready),
            head_write.data.some.eq(enters), head_write.data.qpn.eq(new),
            after.en.eq(loads | moves), after.addr.eq(Mux(loads, head.data.qpn, after.data.qpn)),
            after_write.addr.eq(new), after_write.en.eq(enters), after_write.data.eq(head.data),
        ]
        m.d.sync += [enters.eq(inside), loads.eq(ended & self.ready), new.eq(self.qpn), slot.eq(self.slot)]
        with m.If(loads):
            m.d.sync += chain.eq(head.data)
        with m.Elif(moves):
            m.d.sync += chain.eq(after.data)
        with m.If(~self.ready):
            m.d.sync += [cursor.eq(cursor + 1), self.ready.eq(cursor[:low].all())]
            with m.If(cursor[:low].all()):
                m.d.sync += cursor.eq(self.now)
        with m.Elif(ended):
            m.d.sync += cursor.eq(cursor + 1)
        return m
