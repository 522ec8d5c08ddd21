"""Proof of the ring writer: it overwrites no unconsumed entry, loses no entry, and writes each one once."""

from amaranth.hdl import Cat, Mux, Signal

from weft.hdl.contract.params import preset
from weft.hdl.ring.doorbell_latch import DoorbellLatch
from weft.hdl.ring.writer import RingWriter
from weft.tb.verify.proof.faulty import faulty
from weft.tb.verify.proof.specification import Spec

LOG2 = 2
SIZE = 1 << LOG2
TOGETHER, PACE = 2, 3
JOINTLY = {"kind": "together"}
PARAMS = preset("test")
BASE = 0x1000


class RingWriterSpec(Spec):
    """Ring of 4 entries in groups of up to 2; producer of entries, write engine and doorbells of the host are free.

    The host may ring any consumer index; a doorbell with a wrong index has no effect.
    """

    name = "ring_writer"
    block = RingWriter
    proof = {"kind": "unbounded"}

    def specify(self, m):
        m.submodules.dut = dut = self.block(PARAMS, 0, together=TOGETHER, pace=PACE)
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
        ]
        count = Signal(width)       # entries of the requested group
        m.d.comb += count.eq(Mux(dut.o_request.valid, dut.o_request.p.length >> 6, 0))
        with m.If(dut.o_request.ready):
            m.d.sync += sent.eq(sent + count)
        # Host: a doorbell takes effect if the index is between the previous one and the index written when the ring
        # compares it. Of two doorbells in a row the newest counts.
        rung = self.free(width, "cons")
        m.d.comb += dut.cons.eq(rung)
        index, consumed, written_then = Signal(width), Signal(width), Signal(width)
        kept, compared = (self.inside(f"dut.doorbell.{name}", 1) for name in ("kept", "compared"))
        to = self.inside("dut.doorbell.to", width)
        m.d.sync += written_then.eq(dut.prod)
        with m.If(dut.cons_stb):
            m.d.sync += index.eq(rung)
        with m.If(compared & ((to - consumed)[:width] <= (written_then - consumed)[:width])):
            m.d.sync += consumed.eq(to)
        held = Signal(width)
        m.d.comb += held.eq(entered - consumed)

        self.check("the newest index is compared", ~compared | kept | (to == index))
        number = dut.o_data.p.data[1:1 + width]
        self.check("no unconsumed entry is overwritten", held <= SIZE)
        self.check("every entry is written once, in order", ~dut.o_data.valid | (number == written))
        self.check("an entry is at the address of its index",
                   ~dut.o_request.valid | (dut.o_request.p.address == BASE + (sent[:LOG2] << 6)))
        self.check("a group has 64 bytes per entry and does not cross the end of the ring",
                   ~dut.o_request.valid | ((dut.o_request.p.length[:6] == 0) & (count != 0) & (count <= TOGETHER)
                                           & (sent[:LOG2] + count <= SIZE)))
        self.check("a group has as many beats as its request states", ~dut.o_data.valid | (
            dut.o_data.p.last == ((written + 1)[:width] == (sent + count)[:width])))
        self.check("the phase inverts every lap", ~dut.o_data.valid | (dut.o_data.p.data[0] == ~written[LOG2]))
        self.check("cons <= prod <= cons + size",
                   ((dut.prod[:width] - consumed)[:width] <= SIZE) & (
                       (dut.prod[:width] - consumed)[:width] <= held), **JOINTLY)
        # State of the block, by the indices of entries: handed over, in the current group, in no group, accepted.
        grouped, left, loose = (self.inside(f"dut.{name}", shape) for name, shape in (
            ("grouped", width), ("left", range(TOGETHER + 1)), ("loose", range(2 * TOGETHER + 1))))
        delivered = self.inside("dut.prod_q", width)
        level = self.inside("dut.waiting.queue.level", range(2 * TOGETHER + 1))
        running, group = self.inside("dut.running", 1), Signal(width)
        m.d.comb += group.eq(grouped - delivered)
        self.check("every accepted entry is in the outstanding group or waits", [
            running | ~(Cat(entered, left, level, dut.o_request.valid, delivered, written).any()),
            (entered - grouped)[:width] == loose, (grouped - written)[:width] == left, level == loose + left,
            (sent + count)[:width] == grouped, left <= group, group <= TOGETHER, held <= SIZE,
            (held >= (entered - delivered)[:width]), (left != 0) | dut.o_request.valid | (group <= TOGETHER)],
            **JOINTLY)
        self.check("prod counts submitted entries only", (up != 3) | (
            (dut.prod[:width] - consumed)[:width] <= (written - consumed)[:width]), **JOINTLY)
        self.check("the free count is exact", (up != 3) | ~dut.full | (dut.free == 0))
        # Ranking: with a ready write engine and space in the ring an entry is taken within two cycles.
        space = (held < SIZE) & (up == 3)
        waited_cycles = self.cycles(m, dut.i.valid & ~dut.i.ready & space & dut.o_data.ready & dut.o_request.ready, 7)
        self.check("no deadlock: space in the ring is used within 4 cycles", waited_cycles < 4, bound=20)
        self.cover("a group of several entries", dut.o_request.valid & (count == TOGETHER))
        self.cover("a full ring", dut.full & (up == 3) & (held == SIZE))
        self.cover("an entry of the second lap", dut.o_data.valid & (written == SIZE + 1))
        self.cover("a rejected doorbell", dut.drop.stb)
        self.cover("an interrupt", dut.o_interrupt.valid)


SPECS = [RingWriterSpec]
FAULTY = faulty(RingWriterSpec, [
    ("the newest index is compared", "with m.If(self.stb):", "with m.If(self.stb & ~kept):", DoorbellLatch),
    ("no unconsumed entry is overwritten", "Mux(load, used == ring.last, used == ring.size)", "used == ring.size"),
    ("no unconsumed entry is overwritten", "running | filled", "running & filled"),
    ("every entry is written once, in order",
     "waiting.o.ready.eq(Mux(left != 0, self.o_data.ready, ~running))", "waiting.o.ready.eq(left != 0)"),
    ("an entry is at the address of its index", "m.If(self.o_request.ready)", "m.If(1)"),
    ("a group has 64 bytes per entry and does not cross the end of the ring",
     "Mux(running, most - (grouped & (most - 1)), most)", "most"),
    ("a group has as many beats as its request states", "taken & (left == 1)", "taken & (left != 0)"),
    ("the phase inverts every lap", "m.If(self.position == ring.last", "m.If(1"),
    ("cons <= prod <= cons + size", "loose + load) & ring.mask", "loose + load) | ring.mask"),
    ("every accepted entry is in the outstanding group or waits", "loose.eq(loose + load), rest", "rest"),
    ("prod counts submitted entries only", "prod.eq(grouped)", "prod.eq(grouped + 1)"),
    ("the free count is exact", "self.free.eq(Mux(running, ring.size - used, 0))", "self.free.eq(ring.size)"),
    ("no deadlock: space in the ring is used within 4 cycles",
     "~self.full & waiting.i.ready", "(used == 0) & waiting.i.ready"),
])
