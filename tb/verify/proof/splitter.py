"""Proof of the splitter of DMA requests: the pieces form the request, and none is larger than a TLP may be."""

from amaranth.hdl import Mux, Signal

from weft.hdl.part.layouts import DmaRequest
from weft.hdl.pcie.splitter import Splitter
from weft.hdl.pcie.tlp import SIZE_MIN_LOG2
from weft.tb.verify.proof.faulty import faulty
from weft.tb.verify.proof.specification import Spec

ADDRESS_BITS, LENGTH_BITS, LARGEST = 14, 13, 4096


class SplitterSpec(Spec):
    """Requests of 1 to 4096 bytes at any address of a few pages, with any size of pieces; pieces are taken at any time.

    The checks are proven together: one of them describes the stored state of the current request.
    """

    name = "splitter"
    block = Splitter
    proof = {"kind": "induction", "seconds": 100}

    def specify(self, m):
        m.submodules.dut = dut = self.block()
        self.free_members(dut, "size", "i__payload")
        size, address, length, last = (self.free(width, name) if name != "size" else self.constant(m, width, name)
                                       for name, width in (("size", 3), ("address", ADDRESS_BITS),
                                                           ("length", LENGTH_BITS), ("last", 1)))
        m.d.comb += [dut.size.eq(size), dut.i.p.address.eq(address), dut.i.p.length.eq(length), dut.i.p.last.eq(last)]
        self.assume(size <= 5)
        self.assume(~dut.i.valid | ((length != 0) & (length <= LARGEST)))
        stood = Signal()        # the size has been stable for a cycle
        m.d.sync += stood.eq(1)
        self.assume(stood | ~dut.i.valid)

        enters, leaves, out = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready, dut.o.p
        due, at, ends, number = Signal(LENGTH_BITS), Signal(ADDRESS_BITS + 1), Signal(), Signal(3)
        with m.If(enters):      # of the current request
            m.d.sync += [due.eq(length), at.eq(address), ends.eq(last), number.eq(0)]
        with m.Elif(leaves):
            m.d.sync += [due.eq(due - out.length), at.eq(at + out.length), number.eq(number + (number != 7))]
        largest, offset = Signal(LENGTH_BITS), Signal(LENGTH_BITS)
        m.d.comb += [largest.eq(1 << size + SIZE_MIN_LOG2), offset.eq(out.address[:LENGTH_BITS - 1] & (largest - 1))]
        waited, offered = Signal(), Signal(64 + LENGTH_BITS + 1)
        m.d.sync += [waited.eq(dut.o.valid & ~dut.o.ready), offered.eq(out.as_value())]

        busy = Signal()
        m.d.sync += busy.eq(enters | (busy & ~(leaves & (out.length == due))))
        kept, space, final = (self.inside(f"dut.{name}", shape) for name, shape in (
            ("request", DmaRequest), ("space", LENGTH_BITS), ("final", 1)))
        self.check("the stored request is its remaining part", ~busy | (
            (kept.address == at) & (kept.length == due) & (kept.last == ends) & (due != 0)
            & (space == largest - offset) & (final == (due <= space)) & (at + due <= (1 << ADDRESS_BITS) + LARGEST)))
        self.check("the decoded size follows the size by a cycle",
                   Mux(stood, self.inside("dut.mask", 12) == (largest - 1)[:12], ~busy))
        self.check("a piece has bytes, and no more than remain",
                   ~dut.o.valid | ((out.length != 0) & (out.length <= due)))
        self.check("no piece crosses a multiple of the size", ~dut.o.valid | (offset + out.length <= largest))
        self.check("pieces follow each other", ~dut.o.valid | (out.address == at))
        self.check("pieces are as large as possible",
                   ~dut.o.valid | (out.length == due) | (offset + out.length == largest))
        self.check("the last piece of the last request is marked",
                   ~dut.o.valid | (out.last == (ends & (out.length == due))))
        self.check("a request is split completely", ~dut.i.ready | ~dut.o.valid | (leaves & (out.length == due)))
        self.check("an offered item is stable", ~waited | (dut.o.valid & (out.as_value() == offered)))
        self.check("no deadlock: an accepted request is offered at once", dut.o.valid == busy)
        self.cover("a third piece of a request", leaves & (number == 2) & out.last)
        self.cover("the largest piece", leaves & (out.length == LARGEST))
        self.cover("a request follows another at once", enters & leaves & (number == 1))


SPECS = [SplitterSpec]
FAULTY = faulty(SplitterSpec, [
    ("the stored request is its remaining part",
     "left.eq(request.length - space)", "left.eq(request.length - space + 1)"),
    ("a piece has bytes, and no more than remain", "Mux(final, request.length, space)", "Mux(final, space, space)"),
    ("no piece crosses a multiple of the size", "(~self.i.p.address[:12] & mask) + 1", "mask"),
    ("pieces follow each other", "(request.address | mask) + 1", "request.address + mask + 1"),
    ("the decoded size follows the size by a cycle",
     "(1 << self.size + SIZE_MIN_LOG2) - 1", "(1 << self.size + SIZE_MIN_LOG2) - 2"),
    ("pieces are as large as possible", "(1 << self.size + SIZE_MIN_LOG2) - 1", "(1 << SIZE_MIN_LOG2) - 1"),
    ("the last piece of the last request is marked", "final & request.last", "request.last"),
    ("a request is split completely", "(self.o.ready & final)", "self.o.ready"),
    ("an offered item is stable", "with m.Elif(self.o.ready):", "with m.Else():"),
    ("no deadlock: an accepted request is offered at once",
     "self.i.p.length <= first_space", "self.i.p.length < first_space"),
])
