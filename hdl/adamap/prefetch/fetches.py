"""Node reads in flight, and their blocks: check, and storage until there is an entry of the head cache."""

from functools import reduce
from operator import or_, xor

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...contract import abi
from ...contract.params import NODE_READS_MAX, REQUEST_LINES_MAX, CardParams
from ...part.layouts import NODE, LineData
from ...part.logic import encode_one_hot, one_hot, priority_encode, read_word
from ..cache.cached import ExtentLookup, extent_member

LINES = REQUEST_LINES_MAX   # consecutive blocks that one read may fetch
WORD_BITS, NIBBLE_BITS = (abi.NODE.by_name[name].width for name in ("check", "next_check"))
POINTER_BITS = abi.NODE.shift_of("qpn")
VERDICT = data.StructLayout({"bad": 1, "ends": 1})


def fetch_slots(params):
    """Return the number of reads that may be in flight or stored."""
    return min(NODE_READS_MAX, params.cache_entries)


def fetch_layout(params):
    """Return the layout of a read of ``lines`` blocks from ``block`` on; ``all``: all blocks that were linked."""
    return data.StructLayout({
        "qpn": params.qpn_width, "generation": 8, "block": params.block_bits, "lines": range(LINES + 1), "all": 1})


class NodeCheck(wiring.Component):
    """Checks a block when it comes, against the list that it is read for. Latency 2, one block per cycle.

    The check word covers all but the first 8 bytes: any damage within 16 bits is detected, and of wider damage all but
    one in 65536. The pointer in these 8 bytes is rewritten when the list grows, and has a check of 4 bits; a wrong one
    that passes leads to a block that is not the list's next one. The RSN is not checked here.

    Members
    -------
    node : In(NODE)
    qpn, generation : In
        The list that it is read for.
    o : Out(VERDICT)
        Two cycles later. ``bad``: it is no node, or not one of that list; ``ends``: null pointer.
    """

    def __init__(self):
        super().__init__({"node": In(NODE), "qpn": In(24), "generation": In(8), "o": Out(VERDICT)})

    def elaborate(self, platform):
        m = Module()
        node, block = self.node, self.node.as_value()
        pointer, rest = block[:POINTER_BITS], block[POINTER_BITS:]
        damage, astray, illegal = Signal(WORD_BITS), Signal(NIBBLE_BITS), Signal()
        contained, listed = (Signal(len(node.qpn) + len(node.generation), name=name) for name in ("contained",
                                                                                                  "listed"))
        null = Signal()         # of its pointer
        legal = reduce(or_, ((node.encoding == encoding.value) & (node.count <= most)
                             for encoding, most in abi.HOLES_MAX.items()))
        m.d.sync += [
            damage.eq(reduce(xor, (rest.word_select(k, WORD_BITS) for k in range(len(rest) // WORD_BITS)))),
            astray.eq(reduce(xor, (pointer.word_select(k, NIBBLE_BITS) for k in range(len(pointer) // NIBBLE_BITS)))),
            illegal.eq((node.count == 0) | ~legal),
            contained.eq(Cat(node.qpn, node.generation)), listed.eq(Cat(self.qpn, self.generation)),
            null.eq(node.next_line == 0), self.o.ends.eq(null),
            self.o.bad.eq((damage != 0) | (astray != 0) | illegal | (contained != listed)),
        ]
        return m


class Fetches(wiring.Component):
    """Records of the reads in flight; their blocks are stored until they are taken.

    One line per cycle. A block is out one cycle after ``slot`` and ``part`` select it. The block that it points to is
    looked up when it comes, and it is checked; both results are valid five cycles after it.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i_line : In(stream.Signature(LineData))
        ``ready`` is always high.
    extent_base, extent_lines : arrays of In
        As for :class:`~weft.hdl.adamap.cache.cached.ExtentLookup`.
    free, free_slot : Out
        A slot for another read.
    start_en, start : In
        The read at ``free_slot`` is issued.
    done, done_slot, done_qpn : Out
        A complete read that is not kept, and its QP. A cycle late; not shown in the cycle after one was finished or
        kept.
    slot, part : In
        Selects a read, and a block of it.
    fetch : Out(fetch_layout(params))
        That read, a cycle later.
    node, pointed, verdict, error : Out
        That block, the number of the one that its pointer leads to, the result of :class:`NodeCheck`, and whether the
        read failed; a cycle later.
    finish_en : In(1)
        Free the read at ``slot``.
    keep_en, keep_loose : In(1)
        Keep the blocks of the read at ``slot``; ``loose``: until its slot is needed.
    loose, loose_slot : Out
        A loosely kept read; two cycles late.
    qpn, of_qpn : In(24).array(2), Out(1).array(2)
        A read of this QP is in flight or kept. A cycle late.
    kept, kept_slot : Out
        The read of the first QP is kept; its slot, in flight or kept. A cycle late.
    quiet : Out(1)
        None is in flight.
    empty : Out(1)
        None is kept, either.
    """

    def __init__(self, params: CardParams):
        self.params = params
        slot = range(fetch_slots(params))
        super().__init__({
            "i_line": In(stream.Signature(LineData)),
            "extent_base": In(58).array(params.knit_extents),
            "extent_lines": In(extent_member(params)).array(params.knit_extents),
            "free": Out(1), "free_slot": Out(slot), "start_en": In(1), "start": In(fetch_layout(params)),
            "done": Out(1), "done_slot": Out(slot), "done_qpn": Out(24),
            "slot": In(slot), "part": In(range(LINES)), "fetch": Out(fetch_layout(params)),
            "node": Out(NODE), "pointed": Out(params.block_bits), "verdict": Out(VERDICT), "error": Out(1),
            "finish_en": In(1), "keep_en": In(1), "keep_loose": In(1), "loose": Out(1), "loose_slot": Out(slot),
            "kept": Out(1), "kept_slot": Out(slot), "quiet": Out(1),
            "qpn": In(24).array(2), "of_qpn": Out(1).array(2), "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        count, line = fetch_slots(self.params), self.i_line
        m.submodules.fetches = fetches = Memory(shape=fetch_layout(self.params), depth=count, init=[])
        # QPs of the reads, accessible in parallel
        qpns = Array(Signal(self.params.qpn_width, name=f"qpn{k}") for k in range(count))
        valid = Signal(count)
        whole = Signal(count)       # all its blocks have come
        keeps = Signal(count)       # its blocks wait for an entry
        loosely = Signal(count)
        m.submodules.errors = errors = Memory(shape=1, depth=count * LINES, init=[])
        m.submodules.blocks = blocks = Memory(shape=NODE, depth=count * LINES, init=[])
        block_write, block_read = blocks.write_port(), blocks.read_port()
        begin, err = fetches.write_port(), errors.write_port()
        line_slot = Signal(range(count))
        of = read_word(m, fetches, line_slot)        # the read that a line belongs to
        m.submodules.pointers = pointers = Memory(shape=self.params.block_bits, depth=count * LINES, init=[])
        m.submodules.verdicts = verdicts = Memory(shape=VERDICT, depth=count * LINES, init=[])
        m.submodules.look_up = look_up = ExtentLookup(self.params)
        m.submodules.check = check = NodeCheck()
        point, judge = pointers.write_port(), verdicts.write_port()
        points = pointers.read_port(transparent_for=(point,))
        judged = verdicts.read_port(transparent_for=(judge,))
        coming = [Signal(data.StructLayout({"valid": 1, "at": len(block_write.addr)}),
                         name=f"coming{k}") for k in range(4)]
        for later, now in zip(coming[1:], coming, strict=False):
            m.d.sync += later.eq(now)
        m.d.sync += [coming[0].valid.eq(line.valid), coming[0].at.eq(block_write.addr),
                     look_up.line.eq(data.View(NODE, line.p.data).next_line)]
        m.d.comb += [
            *[a.eq(b) for a, b in zip(look_up.extent_base, self.extent_base, strict=True)],
            *[a.eq(b) for a, b in zip(look_up.extent_lines, self.extent_lines, strict=True)],
            point.en.eq(coming[3].valid), point.addr.eq(coming[3].at), point.data.eq(look_up.o),
            points.en.eq(1), points.addr.eq(block_read.addr), self.pointed.eq(points.data),
            check.node.eq(line.p.data), check.qpn.eq(of.qpn),
            check.generation.eq(of.generation), judge.en.eq(coming[1].valid), judge.addr.eq(coming[1].at),
            judge.data.eq(check.o), judged.en.eq(1), judged.addr.eq(block_read.addr), self.verdict.eq(judged.data),
        ]
        m.d.comb += [
            line.ready.eq(1), line_slot.eq(line.p.tag),
            block_write.en.eq(line.valid), block_write.addr.eq(Cat(line.p.index, line_slot)),
            block_write.data.eq(line.p.data),
            block_read.en.eq(1), block_read.addr.eq(Cat(self.part, self.slot)),
            self.node.eq(block_read.data),
            begin.en.eq(self.start_en), begin.addr.eq(self.free_slot), begin.data.eq(self.start),
            err.en.eq(line.valid), err.addr.eq(block_write.addr), err.data.eq(line.p.error),
            self.empty.eq(~valid.any()),
            self.quiet.eq(~(valid & ~keeps).any()),
        ]
        m.d.sync += [self.fetch.eq(read_word(m, fetches, self.slot)),
                     self.error.eq(read_word(m, errors, block_read.addr)),
                     self.loose.eq(loosely.any()), self.loose_slot.eq(priority_encode(loosely))]
        with m.If(line.valid):
            m.d.sync += whole.bit_select(line_slot, 1).eq(line.p.last)
        with m.If(self.start_en):
            m.d.sync += [qpns[self.free_slot].eq(self.start.qpn), valid.bit_select(self.free_slot, 1).eq(1),
                         whole.bit_select(self.free_slot, 1).eq(0)]
        at = one_hot(1, self.slot, count)
        with m.If(self.finish_en):
            m.d.sync += [valid.eq(valid & ~at), keeps.eq(keeps & ~at), loosely.eq(loosely & ~at)]
        with m.Elif(self.keep_en):
            m.d.sync += [keeps.eq(keeps | at), loosely.eq((loosely & ~at) | (at & self.keep_loose.replicate(count)))]
        came, there, changes = valid & whole & ~keeps, Signal(), Signal()
        m.d.sync += [there.eq(came.any()), self.done_slot.eq(priority_encode(came)),
                     changes.eq(self.finish_en | self.keep_en)]
        m.d.comb += [self.done.eq(there & ~changes), self.done_qpn.eq(read_word(m, fetches, self.done_slot).qpn),
                     self.free.eq(~valid.all()), self.free_slot.eq(priority_encode(~valid))]
        own = [Cat(v & (its == qpn[:len(its)]) for v, its in zip(valid, qpns, strict=True)) for qpn in self.qpn]
        m.d.sync += [*[of_qpn.eq(bits.any()) for of_qpn, bits in zip(self.of_qpn, own, strict=True)],
                     self.kept.eq((own[0] & keeps).any()), self.kept_slot.eq(encode_one_hot(own[0]))]
        return m
