"""Proof of the retirement lane: one report for every node that leaves its list, with that node's block."""

from amaranth.hdl import Array, Cat, Const, Signal
from amaranth.lib import data

from weft.hdl.adamap.cache.cached import line_of
from weft.hdl.adamap.match.retire import RetireLane
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import REPORT_RETIRE
from weft.tb.verify.proof.faulty import faulty
from weft.tb.verify.proof.specification import Spec

PARAMS = preset("test").with_(cache_entries=4, knit_extents=2, block_bits=9)
NUMBER_BITS = 5


def number(block):
    """Return the number of a block: bit 1 selects the extent, bit 0 the block in it."""
    return Cat(block[0], Const(0, PARAMS.extent_blocks_log2 - 1), block[1])


class RetireSpec(Spec):
    """Orders arrive whenever there is space, and nodes carry numbers; reports are taken at any time.

    The block of an entry is a number, the first or second block of either extent. It may change after the entry was
    read, as it does when the entry is filled again.
    """

    name = "retire"
    block = RetireLane
    proof = {"kind": "unbounded", "seconds": 120}

    def specify(self, m):
        m.submodules.dut = dut = self.block(PARAMS)
        self.free_members(dut, "op", "cache__read_node", "cache__block", "extent_base")
        for k in range(2):
            m.d.comb += dut.extent_base[k].eq(self.constant(m, 4, f"base{k}"))
        ordered, reported = Signal(NUMBER_BITS), Signal(NUMBER_BITS)
        newest = Signal(NUMBER_BITS)
        m.d.sync += newest.eq(ordered)
        m.d.comb += [dut.op.index.eq(self.free(2, "index")), dut.cache.read_node.rsn.eq(newest)]
        self.assume(~dut.op_en | dut.space)
        order = dut.op_en
        out = dut.o_report.valid & dut.o_report.ready
        m.d.sync += [ordered.eq(ordered + order), reported.eq(reported + out)]

        # Model of the blocks: a retired entry keeps its block until it is filled, two cycles later at the earliest.
        blocks = Array(Signal(2, name=f"block{k}") for k in range(4))
        quiet = Array(Signal(2, name=f"quiet{k}") for k in range(4))
        for k in range(4):
            m.d.sync += quiet[k].eq(quiet[k] - (quiet[k] != 0))
            with m.If(order & (dut.op.index == k)):
                m.d.sync += quiet[k].eq(3)
            with m.Elif((quiet[k] == 0) & self.free(1, f"fill{k}")):
                m.d.sync += blocks[k].eq(self.free(2, f"block{k}"))
        read = Signal(2)
        with m.If(dut.cache.read_en):
            m.d.sync += read.eq(blocks[dut.cache.read_index])
        m.d.comb += dut.cache.block.eq(number(read))
        followed = self.constant(m, NUMBER_BITS, "followed")
        block, known = Signal(2), Signal()      # block of the followed order
        with m.If(order & (ordered == followed) & ~known):
            m.d.sync += [block.eq(blocks[dut.op.index]), known.eq(1)]
        with m.If(out & (reported == followed)):
            m.d.sync += known.eq(0)

        report = data.View(REPORT_RETIRE, dut.o_report.p.entry)
        self.check("reports come in order, each once", ~dut.o_report.valid | (report.rsn[:NUMBER_BITS] == reported))
        self.check("no report without an order", ~dut.o_report.valid | (ordered != reported))
        self.check("a report names the block that its entry held",
                   ~(dut.o_report.valid & known & (reported == followed)) | (
                       report.line == line_of(PARAMS, dut.extent_base, number(block))), bound=15)
        self.check("the queue has space for all waiting orders", (ordered - reported)[:NUMBER_BITS] <= 8)
        waited_cycles = Signal(4)
        with m.If((ordered != reported) & ~dut.o_report.valid):
            m.d.sync += waited_cycles.eq(waited_cycles + 1)
        with m.Else():
            m.d.sync += waited_cycles.eq(0)
        self.check("no deadlock: a report within 5 cycles of its order", waited_cycles <= 5)
        self.cover("no space for an order", ~dut.space)
        self.cover("a report of a later order", dut.o_report.valid & (reported == 9))


SPECS = [RetireSpec]
FAULTY = faulty(RetireSpec, [
    ("reports come in order, each once", "report.rsn.eq(node.rsn)", "report.rsn.eq(self.cache.read_node.rsn)"),
    ("no report without an order", "(valids << 1) | self.op_en)", "(valids << 1) | 1)"),
    ("a report names the block that its entry held",
     "self.cache.read_index.eq(stages[0].index)", "self.cache.read_index.eq(self.op.index)"),
    ("the queue has space for all waiting orders", "REPORTS - OUTSTANDING - 1", "REPORTS - 1"),
    ("no deadlock: a report within 5 cycles of its order",
     "reports.i.valid.eq(valids[2]),", "reports.i.valid.eq(valids[2] & self.op_en),"),
])
