"""Proof of the store-and-forward memory at the MAC: frames that were kept leave once, and no other frames leave."""

from amaranth.hdl import Array, Cat, Signal
from amaranth.lib import data

from weft.hdl.part.layouts import BEAT_BITS
from weft.hdl.receive.revocable_buffer import RevocableBuffer
from weft.tb.verify.proof.faulty import faulty
from weft.tb.verify.proof.specification import Spec

DEPTH, NUMBER_BITS = 4, 4


class RevocableBufferSpec(Spec):
    """Numbered beats, frames that end at any time and are kept or revoked, and a reader that takes at any time.

    Beats are numbered consecutively; after a revoked frame, the numbers restart at that of its first beat.
    """

    name = "revocable_buffer"
    block = RevocableBuffer
    proof = {"kind": "together", "seconds": 300}

    def specify(self, m):
        m.submodules.dut = dut = self.block(DEPTH)
        self.free_members(dut, "i__payload")
        kept, fresh, left = (Signal(NUMBER_BITS, name=name) for name in ("kept", "fresh", "left"))
        number, empty, last = Signal(NUMBER_BITS), self.free(6, "empty"), self.free(1, "last")
        m.d.comb += [number.eq(kept + fresh), dut.i.p.data.eq(number), dut.i.p.empty.eq(empty), dut.i.p.last.eq(last)]
        self.assume(~dut.keep | (dut.end & dut.fits))
        comes, leaves = Signal(), dut.o.valid & dut.o.ready
        whole, before = Signal(), Signal(init=1)      # every beat of the frame so far had space
        level, space = Signal(NUMBER_BITS), Signal()
        m.d.comb += [level.eq(number - left), space.eq(level < DEPTH), comes.eq(dut.i.valid & dut.fits),
                     whole.eq(before & (space | ~dut.i.valid))]
        m.d.sync += [left.eq(left + leaves), before.eq(dut.fits | dut.end)]
        with m.If(dut.end):
            m.d.sync += fresh.eq(0)
            with m.If(dut.keep):
                m.d.sync += kept.eq(number + comes)
        with m.Else():
            m.d.sync += fresh.eq(fresh + comes)
        followed = self.constant(m, NUMBER_BITS, "followed")
        entered = Signal(7)
        with m.If(comes & (number == followed)):
            m.d.sync += entered.eq(dut.i.p.empty | last << 6)
        waited, offered = Signal(), Signal(NUMBER_BITS)
        m.d.sync += [waited.eq(dut.o.valid & ~dut.o.ready), offered.eq(dut.o.p.data)]
        idle, out = self.cycles(m, ~dut.o.valid & (kept != left), 3), dut.o.p

        self.check("the memory holds the beats that arrived and did not leave", self._held(
            m, number, comes, left, kept, followed, entered) & (self.inside("dut.lost", 1) == ~before))
        self.check("beats leave in order, each once", ~dut.o.valid | (out.data == left))
        self.check("only kept beats leave", ~dut.o.valid | (left != kept))
        self.check("a beat keeps its side data", ~dut.o.valid | (left != followed) | (
            (out.empty == entered[:6]) & (out.last == entered[6])))
        self.check("a frame for which there is space fits", ~whole | dut.fits)
        self.check("a frame that does not fit is marked until its end", before | ~dut.fits)
        self.check("an offered item is stable", ~waited | (dut.o.valid & (out.data == offered)))
        self.check("no deadlock: a kept beat is offered within 2 cycles", idle < 2)
        taken_back = self.once(m, dut.end & ~dut.keep & (fresh != 0))
        again = self.once(m, self.once(m, ~dut.fits) & dut.keep)
        self.cover("a beat without space", ~dut.fits & dut.i.valid)
        self.cover("a frame is taken back, the next one leaves", taken_back & leaves)
        self.cover("a frame is kept after one that did not fit", again & leaves & (left == DEPTH + 1))
        self.cover("a slot is reused", leaves & (left == DEPTH + 1))

    def _held(self, m, number, comes, left, kept, followed, entered):
        """Return whether the memory and its pointers satisfy the invariant."""
        dut = m.submodules.dut
        stored = data.StructLayout({"data": BEAT_BITS, "empty": 6, "last": 1})
        words = Array(self.inside(f"dut.memory[{k}]", stored) for k in range(DEPTH))
        pointer = range(2 * DEPTH)
        written, committed, fetched = (self.inside(f"dut.{name}", pointer) for name in (
            "written_next", "committed", "fetched"))
        first, level, safe, following = (Signal(NUMBER_BITS, name=name) for name in (
            "first", "level", "safe", "following"))
        m.d.comb += [first.eq(left + dut.o.valid), level.eq(number - first), safe.eq(kept - first),
                     following.eq(number + comes)]
        sane = [fetched == first[:len(fetched)], written == following[:len(written)],
                committed == kept[:len(committed)],
                level <= DEPTH, safe <= level, self.inside("dut.full", 1) == (level == DEPTH)]
        for k in range(DEPTH):
            its, word = Signal(NUMBER_BITS, name=f"number{k}"), Signal(stored, name=f"word{k}")
            m.d.comb += [its.eq(first + k), word.eq(words[its[:2]])]
            sane += [(level <= k) | (word.data[:NUMBER_BITS] == its),
                     (level <= k) | (its != followed) | ((word.empty == entered[:6]) & (word.last == entered[6]))]
        return Cat(sane).all()


SPECS = [RevocableBufferSpec]
FAULTY = faulty(RevocableBufferSpec, [
    ("the memory holds the beats that arrived and did not leave",
     "m.d.sync += [written.eq(committed), full", "m.d.sync += [written.eq(written_next), full"),
    ("beats leave in order, each once", "written.eq(committed)", "written.eq(written_next)"),
    ("only kept beats leave",
     "m.d.sync += fetched.eq(fetched + read.en)", "m.d.sync += fetched.eq(fetched + 1)"),
    ("a beat keeps its side data", "self.i.p.empty, self.i.p.last))", "self.i.p.empty))"),
    ("a frame for which there is space fits", "full.eq(~read.en & Mux(", "full.eq(Mux("),
    ("a frame that does not fit is marked until its end", "lost.eq(~self.fits)", "lost.eq(0)"),
    ("an offered item is stable", "        with m.If(~self.o.valid | self.o.ready):\n", "        with m.If(1):\n"),
    ("no deadlock: a kept beat is offered within 2 cycles",
     "(fetched != committed) &", "(fetched != committed) & self.i.valid &"),
])
