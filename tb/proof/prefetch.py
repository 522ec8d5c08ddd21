"""What is proven of prefetcher, head cache and the count of linked nodes together: pointers, lives, tags, progress."""

from functools import reduce
from operator import xor

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import data, wiring

from weft.hdl import abi
from weft.hdl.adamap.ahead import AheadTable
from weft.hdl.adamap.block import line_of
from weft.hdl.adamap.control import ControlKind
from weft.hdl.adamap.head_cache import HeadCache
from weft.hdl.adamap.node_check import WORD_BITS
from weft.hdl.adamap.prefetch import Prefetch
from weft.hdl.layouts import NODE
from weft.hdl.params import preset
from weft.tb.proof.engine import Spec, mutant

QPS = 2
LINE_BITS, COUNT_BITS, LINKED_BITS = 5, 3, 4
FIRST_LINE = 0x30       # lines are counted from here, so that some extents cross a page
PAGE_LINES = 64
CHECK_WORD = abi.NODE.offset_of("check") // WORD_BITS
IDLE, CLEAR, POSTED, LIST, ENTER = range(5)     # what a life's beginning or end waits for


class PrefetchSpec(Spec):
    """Two QPs, a cache of 4 nodes, a hostile host memory, a matcher that marks and drops as it likes.

    The host memory returns anything: wrong pointers, QPNs, generations, counts, failed reads, in any order, but with
    check words that hold. Link doorbells may be of any QPN and generation; only those of a QP's present life count.
    The driver is trusted to destroy and create in turn, each life with another generation, and not to link more than
    12 nodes in one. The QP table loses an entry before its list is destroyed, and gets one after the list is created.
    Lines and counts are a few bits wide, the rest of those words is zero.

    Parameters
    ----------
    block, cache, ahead : type, optional
        Broken copies of the prefetcher, the head cache, the table of linked nodes.
    """

    name = "prefetch"
    block = Prefetch
    depth, entries = 24, 4
    living = False

    def __init__(self, block=None, *, cache=HeadCache, ahead=AheadTable):
        super().__init__(block)
        self.cache_block, self.ahead_block = cache, ahead

    def specify(self, m):
        entries = self.entries
        params = preset("test").with_(qps=QPS, cache_entries=entries, knit_extents=2, block_bits=9,
                                      prefetch_depth_max=4)
        m.submodules.dut = dut = self.block(params)
        m.submodules.cache = cache = self.cache_block(params)
        m.submodules.table = table = self.ahead_block(params, readers=2)
        self.free_members(dut, "cache", "i_control", "ahead", "step", "qp", "post_stb", "post_qpn", "i_demand",
                          "i_line", "extent_base", "extent_lines", "prefetch_depth", "prefetch_watermark", "view_en",
                          "view_index")
        wiring.connect(m, dut.step, table.step)
        m.d.comb += [
            table.read_en[0].eq(dut.row_en), table.read_index[0].eq(dut.row_index), dut.ahead.eq(table.read_data[0]),
            dut.post_stb.eq(table.took), dut.post_qpn.eq(table.took_qpn),
        ]
        for path, member, value in dut.cache.signature.flatten(dut.cache):
            other = cache.fill
            for part in path:
                other = getattr(other, part)
            m.d.comb += other.eq(value) if member.flow.name == "Out" else value.eq(other)
        for k in range(2):
            base = 0 if self.living and k == 0 else self.constant(m, LINE_BITS, f"base{k}")
            m.d.comb += [dut.extent_base[k].eq(FIRST_LINE + base),
                         dut.extent_lines[k].eq(self.constant(m, LINE_BITS, f"lines{k}"))]
        m.d.comb += [dut.prefetch_depth.eq(self.constant(m, 2, "depth") + 1),
                     dut.prefetch_watermark.eq(self.constant(m, 2, "watermark") + 1),
                     dut.i_demand.valid.eq(self.free(1, "demand")), dut.i_demand.payload.eq(self.free(1, "demands"))]
        self.assume(~dut.granted | dut.exclusive)

        # Life of the QPs, one operation at a time. Creation: count of linked nodes, prefetcher, QP table; destruction:
        # QP table, prefetcher, matcher.
        life = data.StructLayout({"alive": 1, "flush": 1, "state": 3, "generation": 2, "linked": LINKED_BITS,
                                  "retired": 4, "rsn": 8, "landed": 4, "out": 3, "line": 7})
        lives = Array(Signal(life, name=f"life{q}", init={
            "alive": 1, "state": abi.QpState.RTS.value, "generation": 1, "line": FIRST_LINE + q} if self.living else {})
            for q in range(QPS))
        op, stage, qpn = dut.i_control, Signal(range(5)), Signal(1)
        starting, target = self.free(1, "control"), self.free(1, "control_qpn")
        busy, flushing = stage != IDLE, Cat(v.flush for v in lives).any()
        own = lives[qpn]
        generation, line = Signal(2), Signal(LINE_BITS)     # of the life that begins
        m.d.comb += [op.valid.eq(stage == LIST), op.p.qpn.eq(qpn),
                     op.p.generation.eq(Mux(own.alive, own.generation, generation)),
                     op.p.kind.eq(Mux(own.alive, ControlKind.DESTROY.value, ControlKind.CREATE.value)),
                     op.p.line.eq(FIRST_LINE + line),
                     table.create_stb.eq(stage == POSTED), table.create_qpn.eq(qpn)]
        done = op.valid & op.ready
        with m.Switch(stage):
            with m.Case(IDLE):
                with m.If(~flushing & starting):
                    m.d.sync += [qpn.eq(target), generation.eq(lives[target].generation + 1),
                                 line.eq(self.free(LINE_BITS, "first_line")),
                                 stage.eq(Mux(lives[target].alive, CLEAR, POSTED))]
            with m.Case(CLEAR):
                m.d.sync += own.state.eq(abi.QpState.RESET.value)
                with m.If(starting):
                    m.d.sync += stage.eq(LIST)
            with m.Case(POSTED):
                with m.If(table.create_done):
                    m.d.sync += stage.eq(LIST)
            with m.Case(LIST):
                with m.If(op.ready):
                    with m.If(own.alive):
                        m.d.sync += [own.alive.eq(0), own.flush.eq(1), stage.eq(IDLE)]
                    with m.Else():
                        m.d.sync += [own.alive.eq(1), own.landed.eq(0), own.retired.eq(0), own.linked.eq(0),
                                     own.line.eq(op.p.line), own.generation.eq(generation), stage.eq(ENTER)]
            with m.Case(ENTER):
                with m.If(starting):
                    m.d.sync += [own.state.eq(abi.QpState.RTS.value), stage.eq(IDLE)]
        for reader in (dut.qp, table.qp):
            entry = Signal(data.StructLayout({"generation": 2, "state": 3}))
            with m.If(reader.en):
                m.d.sync += [entry.generation.eq(lives[reader.index].generation),
                             entry.state.eq(lives[reader.index].state)]
            m.d.comb += [reader.entry.generation.eq(entry.generation), reader.entry.state.eq(entry.state)]

        # Doorbells: of any life of any QP, or of none.
        post, posted, more = self.free(1, "post"), self.free(2, "post_qpn"), self.free(2, "post_more")
        post_generation, posting = self.free(2, "post_generation"), Signal()
        receiver = lives[posted[0]]
        m.d.comb += [table.post_stb.eq(post), table.post_qpn.eq(posted), table.post_generation.eq(post_generation),
                     table.post_nodes.eq(more),
                     posting.eq(post & (posted < QPS) & (receiver.generation == post_generation)
                                & (receiver.state != abi.QpState.RESET.value))]
        self.assume(~posting | (receiver.linked < 12))
        with m.If(posting):
            m.d.sync += receiver.linked.eq(receiver.linked + more)

        # The read engine: any answer, in any order.
        tags = [Signal(3, name=f"read{k}") for k in range(entries)]      # lines still to come
        index = Array(Signal(2, name=f"index{k}") for k in range(entries))
        first = Array(Signal(7, name=f"first{k}") for k in range(entries))
        owner = [Signal(1, name=f"owner{k}") for k in range(entries)]
        answer = self.free(range(entries), "answer_tag")
        line = dut.i_line
        word = data.View(NODE, line.p.data)
        others = [word.as_value().word_select(k, WORD_BITS) for k in range(abi.NODE.size_bytes * 8 // WORD_BITS)
                  if k != CHECK_WORD]
        m.d.comb += [line.valid.eq(self.free(1, "answer") & (Array(tags)[answer] != 0)), line.p.tag.eq(answer),
                     line.p.last.eq(Array(tags)[answer] == 1), line.p.index.eq(index[answer]),
                     line.p.error.eq(self.free(1, "error")),
                     word.next_line.eq(FIRST_LINE + self.free(LINE_BITS, "next_line")),
                     word.next_adjacent.eq(self.free(1, "next_adjacent")), word.qpn.eq(self.free(1, "node_qpn")),
                     word.generation.eq(self.free(2, "node_generation")), word.encoding.eq(self.free(2, "encoding")),
                     word.count.eq(self.free(COUNT_BITS, "count")), word.rsn.eq(self.free(6, "node_rsn")),
                     word.base_psn.eq(first[answer] + index[answer]),       # tells where it was read
                     word.check.eq(reduce(xor, others))]
        issue = dut.o_line.valid & dut.o_line.ready
        caller = dut.row_index
        for k in range(entries):
            with m.If(line.valid & (answer == k)):
                m.d.sync += [tags[k].eq(tags[k] - 1), index[k].eq(index[k] + 1)]
            with m.If(issue & (dut.o_line.p.tag == k)):
                m.d.sync += [tags[k].eq(dut.o_line.p.count), index[k].eq(0), owner[k].eq(caller),
                             first[k].eq(dut.o_line.p.line)]

        # The tags of the cache, as its ports tell.
        tag = data.StructLayout({"valid": 1, "reserved": 1, "qpn": 1, "rsn": 8, "count": COUNT_BITS,
                                 "line": 7})
        copies = Array(Signal(tag, name=f"copy{k}") for k in range(entries))
        fill = cache.fill
        match = cache.match
        dropping, dropped = Signal(), self.free(range(entries), "drop_index")
        marked = self.free(range(entries), "mark_index")
        victim = copies[dropped]
        m.d.comb += [
            dropping.eq(self.free(1, "drop") & victim.valid & lives[victim.qpn].alive & ~dut.granted
                        & (victim.rsn == lives[victim.qpn].rsn)),
            match.retire_en.eq(dropping), match.retire_index.eq(dropped), match.retire_qpn.eq(victim.qpn),
            match.retire_end.eq(victim.rsn + victim.count),
            match.mark_en.eq(self.free(1, "mark") & copies[marked].valid & ~dut.granted), match.mark_index.eq(marked),
            match.mark_bitmap.eq(self.free(1, "mark_bitmap")),
        ]
        flush = self.free(1, "flush")
        flushed = Signal(1)
        m.d.comb += [match.flush_en.eq(flush & flushing & ~dut.exclusive), match.flush_qpn.eq(flushed),
                     flushed.eq(lives[1].flush)]
        evicting = fill.release_en & copies[fill.release_index].valid
        landing = Signal(1)
        m.d.comb += landing.eq(fill.fill_node.qpn)
        for k in range(entries):
            c = copies[k]
            with m.If(fill.reserve_en & (fill.free_index == k)):
                m.d.sync += c.reserved.eq(1)
            with m.If(fill.release_en & (fill.release_index == k)):
                m.d.sync += [c.reserved.eq(0), c.valid.eq(0)]
            with m.If((dropping & (dropped == k)) | (match.flush_en & (c.qpn == flushed))):
                m.d.sync += c.valid.eq(0)
            with m.If(fill.fill_en & (fill.fill_index == k)):
                m.d.sync += [c.valid.eq(1), c.reserved.eq(0), c.qpn.eq(fill.fill_node.qpn),
                             c.rsn.eq(fill.fill_node.rsn), c.count.eq(fill.fill_node.count),
                             c.line.eq(fill.fill_node.base_psn)]
        with m.If(dropping):
            m.d.sync += [lives[victim.qpn].rsn.eq(lives[victim.qpn].rsn + victim.count),
                         lives[victim.qpn].retired.eq(lives[victim.qpn].retired + 1)]
        with m.If(match.flush_en):
            m.d.sync += lives[flushed].flush.eq(0)
        for q in range(QPS):
            up = fill.fill_en & (landing == q)
            down = evicting & (copies[fill.release_index].qpn == q)
            others = Cat(c.valid & (c.qpn == q) & ~(dropping & (dropped == k)) for k, c in enumerate(copies))
            with m.If(up):
                m.d.sync += [lives[q].landed.eq(lives[q].landed + 1), lives[q].line.eq(fill.fill_node.next_line)]
                with m.If(~others.any()):       # the first node of an empty list may have any RSN
                    m.d.sync += lives[q].rsn.eq(fill.fill_node.rsn)
            with m.Elif(down):
                m.d.sync += [lives[q].landed.eq(lives[q].landed - 1),
                             lives[q].line.eq(copies[fill.release_index].line)]
            back = [(t != 0) & (o == q) for t, o in zip(tags, owner, strict=True)]
            m.d.comb += lives[q].out.eq(sum(back))

        # What must hold.
        bound = {"bound": self.depth, "seconds": 900}
        at, some_lines = dut.o_line.p.line, dut.o_line.p.count
        inside = Cat((at >= b) & (at - b + some_lines <= n)
                     for b, n in zip(dut.extent_base, dut.extent_lines, strict=True))
        self.check("no fetch outside the extents", ~dut.o_line.valid | inside.any(), **bound)
        self.check("no read crosses a page", ~dut.o_line.valid | (at[:6] + some_lines <= PAGE_LINES), **bound)
        self.check("a list is read where its last node or its creation said",
                   ~dut.o_line.valid | (at == lives[caller].line), **bound)
        self.check("what lands was read there, and its block is known by that number", ~fill.fill_en | (
            (fill.fill_node.base_psn == lives[landing].line)
            & (line_of(params, dut.extent_base, fill.fill_block) == lives[landing].line)), **bound)
        self.check("no fetch beyond the linked count",
                   ~dut.o_line.valid | (lives[caller].landed + some_lines <= lives[caller].linked), **bound)
        self.check("no fetch for a dead QP", ~dut.o_line.valid | lives[caller].alive, **bound)
        self.check("one fetch in flight per list", ~issue | (lives[caller].out == 0), **bound)
        self.check("no fetch in flight after a destroy", ~done | ~lives[qpn].alive | (lives[qpn].out == 0), **bound)
        self.check("what lands is of a living QP and generation", ~fill.fill_en | (
            lives[landing].alive & (fill.fill_node.generation == lives[landing].generation)), **bound)
        self.check("entries are taken free and filled when taken", ~(
            fill.reserve_en & (~fill.free | copies[fill.free_index].valid | copies[fill.free_index].reserved)
            | fill.fill_en & ~copies[fill.fill_index].reserved), **bound)
        asked_qpn, asked_rsn = self.constant(m, 1, "some_qpn"), self.constant(m, 8, "some_rsn")
        hits = [c.valid & (c.qpn == asked_qpn) & ((asked_rsn - c.rsn)[:8] < c.count) for c in copies]
        self.check("no RSN of a list in two entries", sum(hits) <= 1, **bound)
        m.d.comb += [match.qpn.eq(asked_qpn), match.rsn.eq(asked_rsn),
                     match.generation.eq(lives[asked_qpn].generation)]
        flat = ~lives[asked_qpn].flush
        self.check("a lookup finds the entry that holds the RSN, and no other",
                   (match.hit == sum(hits).any()) | ~flat | ~lives[asked_qpn].alive, **bound)
        held = [c.valid & (c.qpn == asked_qpn) for c in copies]
        heads = [h & (c.rsn == lives[asked_qpn].rsn) for h, c in zip(held, copies, strict=True)]
        self.check("the first cached node of a list is its head", ~flat | ~lives[asked_qpn].alive | (
            (match.head == Cat(held).any()) & (match.head == sum(heads).any())), **bound)
        some = lives[asked_qpn]
        self.check("every node landed is cached or retired, once",
                   ~some.alive | (sum(held) == (some.landed - some.retired)[:4]), **bound)
        quiet = Signal(2)
        m.d.comb += [table.read_en[1].eq(1), table.read_index[1].eq(asked_qpn)]
        with m.If(post | dut.step.valid):
            m.d.sync += quiet.eq(0)
        with m.Else():
            m.d.sync += quiet.eq(quiet + (quiet != 2))
        self.check("the count ahead is what was linked and has not landed",
                   ~some.alive | (quiet != 2) | (table.read_data[1] == (some.linked - some.landed)[:LINKED_BITS]),
                   **bound)
        m.d.comb += [dut.view_en.eq(1), dut.view_index.eq(asked_qpn)]
        was = Signal(init=1)
        m.d.sync += was.eq(some.alive)
        self.check("a dead QP's list is not live", was | ~dut.view_live, **bound)
        reserved = sum(c.reserved for c in copies)
        self.check("every read in flight has its entry", reserved >= sum(t != 0 for t in tags), **bound)

        # Ranking: a living list with linked nodes and an empty cache fetches, or breaks, in a bounded time after a
        # doorbell or a demand. A list whose node was turned out must be demanded anew.
        errors, needed = Signal(QPS), Signal(QPS)
        for q in range(QPS):
            demanded = dut.i_demand.valid & dut.i_demand.ready & (dut.i_demand.payload == q)
            with m.If((evicting & (copies[fill.release_index].qpn == q)) | (dropping & (victim.qpn == q))
                      | ~lives[q].alive):
                m.d.sync += needed[q].eq(0)
            with m.Elif((table.took & (table.took_qpn == q) & (table.took_nodes != 0)) | demanded):
                m.d.sync += needed[q].eq(1)
            with m.If(dut.o_report.valid & (caller == q)):
                m.d.sync += errors[q].eq(1)
            with m.If(done & (qpn == q)):
                m.d.sync += errors[q].eq(0)
        patience = Signal(5)
        hungry = (some.alive & (some.linked != some.landed) & (some.landed == some.retired) & (some.out == 0)
                  & Array(needed)[asked_qpn] & ~Array(errors)[asked_qpn] & (reserved == 0)
                  & ~Cat(c.valid for c in copies).any())
        calm = (dut.o_line.ready & dut.o_report.ready & dut.o_qp_error.ready & ~busy & ~line.valid & ~post
                & ~Cat(tags).any() & ~match.mark_en & (~dut.exclusive | dut.granted)
                & (~dut.o_force.valid | dut.o_force.ready))
        with m.If(hungry & calm & ~issue):
            m.d.sync += patience.eq(patience + (patience != 31))
        with m.Else():
            m.d.sync += patience.eq(0)
        self.check("no deadlock: a hungry list fetches or breaks within 20 cycles", patience <= 20, **bound)

        self.cover("a node lands", fill.fill_en, bound=40)
        self.cover("a second node of a list lands", fill.fill_en & (lives[landing].landed == 1), bound=50, seconds=120)
        dying = Signal(4)
        with m.If(busy & lives[qpn].alive & (lives[qpn].out != 0)):
            m.d.sync += dying.eq(dying + (dying != 15))
        with m.Else():
            m.d.sync += dying.eq(0)
        self.cover("a destroy waits for a fetch", (dying == 12) & line.valid & line.p.last, bound=40)
        if entries == 2:
            self.cover("an untouched node is turned out", evicting, bound=50, seconds=200)
        self.cover("a node retires and its list fetches again", issue & (some.retired == 1) & (caller == asked_qpn),
                   bound=50, seconds=100)
        self.cover("a bad node breaks its list", dut.o_report.valid, bound=40)
        self.cover("one read for several nodes", issue & (some_lines > 1), bound=50, seconds=120)
        self.cover("a doorbell of a former life", post & (posted < QPS) & receiver.alive & (more != 0)
                   & ((post_generation + 1)[:2] == receiver.generation) & (receiver.generation == 2), bound=40)


class LivingPrefetchSpec(PrefetchSpec):
    """The same, but both QPs live from the start, which saves the cycles of their creation.

    Their lists begin with the first two blocks of the first extent, which has a known place.
    """

    name = "prefetch_living"
    depth, living = 28, True

    def __init__(self, block=None, **options):
        starts = ("shape=next_shape, depth=p.qps, init=[]",
                  'shape=next_shape, depth=p.qps, init=[{"inverse": gone - q} for q in range(p.qps)]')
        super().__init__(mutant(block or Prefetch, starts), **options)


class SmallPrefetchSpec(LivingPrefetchSpec):
    """The same with a cache of 2 nodes, which is soon full."""

    name = "prefetch_small"
    depth, entries = 24, 2


SPECS = [PrefetchSpec, LivingPrefetchSpec, SmallPrefetchSpec]
MUTANTS = [
    (PrefetchSpec, [("with m.If(wanted & ~inside):", "with m.If(0):")], "no fetch outside the extents"),
    (LivingPrefetchSpec, [("live & ~busy & (ahead != 0)", "live & ~busy")], "no fetch beyond the linked count"),
    (LivingPrefetchSpec, [("live & ~busy & (ahead != 0)", "live & (ahead != 0)")], "one fetch in flight per list"),
    (LivingPrefetchSpec, [("space.eq(least(at_most(LINES, self.prefetch_depth - cached), at_most(LINES, ahead)))",
                           "space.eq(at_most(LINES, self.prefetch_depth - cached))")],
     "no fetch beyond the linked count"),
    (LivingPrefetchSpec, [("check.follows.eq(cache.follows)", "check.follows.eq(1)")],
     "no RSN of a list in two entries"),
    (LivingPrefetchSpec, [("self.i_control.ready.eq(~of_control),", "self.i_control.ready.eq(1),")],
     "no fetch in flight after a destroy"),
    (LivingPrefetchSpec, [("check.generation.eq(fetch.generation)", "check.generation.eq(node.generation)")],
     "what lands is of a living QP and generation"),
]
