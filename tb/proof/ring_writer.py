"""What is proven of the ring writer: it never overwrites an unconsumed entry, loses none, and writes each once."""

from amaranth.hdl import Signal

from weft.hdl.params import preset
from weft.hdl.ring.writer import RingWriter
from weft.tb.proof.broken import Broken
from weft.tb.proof.specification import Spec

LOG2 = 2
SIZE = 1 << LOG2
PARAMS = preset("test")
BASE = 0x1000


class RingWriterSpec(Spec):
    """A ring of 4 entries; the producer of entries, the write engine and the host's doorbells are free.

    The host may ring any consumer index, a wrong one too: it then counts as never rung.
    """

    name = "ring_writer"
    block = RingWriter

    def specify(self, m):
        m.submodules.dut = dut = self.block(PARAMS, 0)
        width = LOG2 + 1
        m.d.comb += [dut.base.eq(BASE), dut.log2.eq(LOG2), dut.enable.eq(1)]
        self.free_members(dut, "base", "log2", "enable", "cons", "i__payload")
        up = Signal(2)
        m.d.sync += up.eq(up + (up != 3))
        self.assume((~dut.cons_stb & ~dut.i.valid) | (up == 3))
        # Every entry carries its number.
        entered, written, sent = Signal(width), Signal(width), Signal(width)
        m.d.comb += dut.i.payload[1:1 + width].eq(entered)
        m.d.sync += [
            entered.eq(entered + (dut.i.valid & dut.i.ready)),
            written.eq(written + (dut.o_data.valid & dut.o_data.ready)),
            sent.eq(sent + (dut.o_request.valid & dut.o_request.ready)),
        ]
        # The host: a doorbell takes effect if the index lies between the one before and what is written.
        rung = self.free(width, "cons")
        m.d.comb += dut.cons.eq(rung)
        consumed, ringing, index = Signal(width), Signal(), Signal(width)
        known = Signal(width)
        m.d.sync += [ringing.eq(dut.cons_stb), index.eq(rung)]
        m.d.comb += known.eq(dut.prod[:width] - consumed)
        fits = Signal()
        m.d.comb += fits.eq((index - consumed)[:width] <= known)
        with m.If(ringing & fits):
            m.d.sync += consumed.eq(index)
        held = Signal(width)
        m.d.comb += held.eq(entered - consumed)

        forever = {"kind": "unbounded"}
        number = dut.o_data.p.data[1:1 + width]
        self.check("never overwrites an unconsumed entry", held <= SIZE, **forever)
        self.check("each entry once, in order", ~dut.o_data.valid | (number == written), **forever)
        self.check("an entry lies where its index says",
                   ~dut.o_request.valid | (dut.o_request.p.address == BASE + (sent[:LOG2] << 6)), **forever)
        self.check("the phase turns every lap", ~dut.o_data.valid | (dut.o_data.p.data[0] == ~written[LOG2]), **forever)
        self.check("cons <= prod <= cons + size",
                   ((dut.prod[:width] - consumed)[:width] <= SIZE) & (
                       (dut.prod[:width] - consumed)[:width] <= held), **forever)
        self.check("prod counts entries handed over alone", (up != 3) | (
            (dut.prod[:width] - consumed)[:width] <= (written - consumed)[:width]), **forever)
        self.check("free tells the truth", (up != 3) | ~dut.full | (dut.free == 0), **forever)
        # Ranking: with a ready write engine and room in the ring an entry is taken within two cycles.
        patience = Signal(3)
        room = (held < SIZE) & (up == 3)
        with m.If(dut.i.valid & ~dut.i.ready & room & dut.o_data.ready & dut.o_request.ready):
            m.d.sync += patience.eq(patience + (patience != 7))
        with m.Else():
            m.d.sync += patience.eq(0)
        self.check("no deadlock: room in the ring is used within 4 cycles", patience < 4, bound=20)
        self.cover("a full ring", dut.full & (up == 3) & (held == SIZE))
        self.cover("second lap", dut.o_data.valid & (written == SIZE + 1))
        self.cover("a refused doorbell", dut.refuse.stb)
        self.cover("an interrupt", dut.o_interrupt.valid)


SPECS = [RingWriterSpec]
BROKEN = [
    Broken(RingWriterSpec, "never overwrites an unconsumed entry", ("| (used == ring.size)", "| (used > ring.size)")),
    Broken(RingWriterSpec, "never overwrites an unconsumed entry", ("running | (used ==", "running & (used ==")),
    Broken(RingWriterSpec, "each entry once, in order", ("m.If(self.o_data.ready)", "m.If(1)")),
    Broken(RingWriterSpec, "each entry once, in order",
           ("load.eq(self.i.valid & self.enable & ~self.full & settled)",
            "load.eq(self.i.valid & self.enable & ~self.full & ~request_left)")),
    Broken(RingWriterSpec, "an entry lies where its index says", ("m.If(self.o_request.ready)", "m.If(1)")),
    Broken(RingWriterSpec, "the phase turns every lap", ("m.If(self.position == ring.size - 1", "m.If(1")),
    Broken(RingWriterSpec, "cons <= prod <= cons + size", ("1) & ring.mask", "1) | ring.mask")),
    Broken(RingWriterSpec, "prod counts entries handed over alone", ("prod.eq(issue)", "prod.eq(issue + 1)")),
    Broken(RingWriterSpec, "free tells the truth",
           ("self.free.eq(Mux(running, ring.size - used, 0))", "self.free.eq(ring.size)")),
    Broken(RingWriterSpec, "no deadlock: room in the ring is used within 4 cycles",
           ("settled.eq(~request_left", "settled.eq(request_left")),
]
