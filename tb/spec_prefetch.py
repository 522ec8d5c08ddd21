"""What is proven of prefetcher and head cache together: pointers, lives, tags, conservation of nodes, progress."""

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import data

from weft.hdl.adamap.control import ControlKind
from weft.hdl.adamap.head_cache import HeadCache
from weft.hdl.adamap.prefetch import Prefetch
from weft.hdl.layouts import NODE
from weft.hdl.params import preset

from .formal import Spec

QPS = 2
LINE_BITS, COUNT_BITS, LINKED_BITS = 5, 3, 4


class PrefetchSpec(Spec):
    """Two QPs, a cache of 4 nodes, a hostile host memory, a matcher that marks and drops as it likes.

    The host memory returns anything: wrong pointers, QPNs, generations, counts, failed reads, in any order. The
    driver is trusted to raise ``linked`` only, to destroy and create in turn, each life with another generation.
    Lines and counts are a few bits wide, the rest of those words is zero.
    """

    name = "prefetch"
    block = Prefetch
    depth, entries = 32, 4

    def __init__(self, block=None, *, cache=HeadCache):
        super().__init__(block)
        self.cache_block = cache

    def specify(self, m):
        entries = self.entries
        params = preset("test").with_(qps=QPS, cache_entries=entries, knit_extents=2, prefetch_depth_max=4)
        m.submodules.dut = dut = self.block(params)
        m.submodules.cache = cache = self.cache_block(params)
        self.free_members(dut, "cache", "i_control", "linked", "post_stb", "post_qpn", "i_demand", "i_line",
                          "extent_base", "extent_lines", "prefetch_depth", "prefetch_watermark", "view_en",
                          "view_index")
        for path, member, value in dut.cache.signature.flatten(dut.cache):
            other = cache.fill
            for part in path:
                other = getattr(other, part)
            m.d.comb += other.eq(value) if member.flow.name == "Out" else value.eq(other)
        for k in range(2):
            m.d.comb += [dut.extent_base[k].eq(self.constant(m, LINE_BITS, f"base{k}")),
                         dut.extent_lines[k].eq(self.constant(m, LINE_BITS, f"lines{k}"))]
        m.d.comb += [dut.prefetch_depth.eq(self.constant(m, 2, "depth") + 1),
                     dut.prefetch_watermark.eq(self.constant(m, 2, "watermark") + 1),
                     dut.i_demand.valid.eq(self.free(1, "demand")), dut.i_demand.payload.eq(self.free(1, "demands"))]
        self.assume(~dut.granted | dut.exclusive)

        # Life of the QPs: posted values, then prefetcher, then matcher, one operation at a time.
        life = data.StructLayout({"alive": 1, "flush": 1, "generation": 2, "linked": LINKED_BITS, "retired": 4,
                                  "rsn": 8, "landed": 4, "out": 3})
        lives = Array(Signal(life, name=f"life{q}") for q in range(QPS))
        op = dut.i_control
        qpn, busy, starting = Signal(1), Signal(), self.free(1, "control")
        target = self.free(1, "control_qpn")
        flushing = Cat(v.flush for v in lives).any()
        m.d.comb += [op.valid.eq(busy), op.p.qpn.eq(qpn), op.p.generation.eq(lives[qpn].generation),
                     op.p.kind.eq(Mux(lives[qpn].alive, ControlKind.DESTROY.value, ControlKind.CREATE.value)),
                     op.p.line.eq(self.free(LINE_BITS, "first_line"))]
        with m.If(~busy & ~flushing & starting):
            m.d.sync += [busy.eq(1), qpn.eq(target)]
            with m.If(~lives[target].alive):
                m.d.sync += [lives[target].linked.eq(0), lives[target].generation.eq(lives[target].generation + 1)]
        done = busy & op.ready
        with m.If(done):
            m.d.sync += busy.eq(0)
            with m.If(lives[qpn].alive):
                m.d.sync += [lives[qpn].alive.eq(0), lives[qpn].flush.eq(1)]
            with m.Else():
                m.d.sync += [lives[qpn].alive.eq(1), lives[qpn].landed.eq(0), lives[qpn].rsn.eq(0),
                             lives[qpn].retired.eq(0)]

        # Doorbells: `linked` rises, of a living QP.
        post, posted, more = self.free(1, "post"), self.free(1, "post_qpn"), self.free(2, "post_more")
        posting = Signal()
        m.d.comb += [posting.eq(post & lives[posted].alive & (lives[posted].linked < 12)),
                     dut.post_stb.eq(posting), dut.post_qpn.eq(posted)]
        with m.If(posting & ~(done & (qpn == posted))):
            m.d.sync += lives[posted].linked.eq(lives[posted].linked + more)
        seen = Signal(life)
        with m.If(dut.row_en):
            m.d.sync += seen.eq(Mux(dut.row_index, lives[1].as_value(), lives[0].as_value()))
        m.d.comb += [dut.linked.generation.eq(seen.generation), dut.linked.value.eq(seen.linked)]

        # The read engine: any answer, in any order.
        tags = [Signal(3, name=f"read{k}") for k in range(entries)]      # lines still to come
        index = Array(Signal(2, name=f"index{k}") for k in range(entries))
        owner = [Signal(1, name=f"owner{k}") for k in range(entries)]
        answer = self.free(range(entries), "answer_tag")
        line = dut.i_line
        word = data.View(NODE, line.p.data)
        m.d.comb += [line.valid.eq(self.free(1, "answer") & (Array(tags)[answer] != 0)), line.p.tag.eq(answer),
                     line.p.last.eq(Array(tags)[answer] == 1), line.p.index.eq(index[answer]),
                     line.p.error.eq(self.free(1, "error")),
                     word.next_line.eq(self.free(LINE_BITS, "next_line")), word.qpn.eq(self.free(1, "node_qpn")),
                     word.generation.eq(self.free(2, "node_generation")), word.encoding.eq(self.free(2, "encoding")),
                     word.count.eq(self.free(COUNT_BITS, "count")), word.rsn.eq(self.free(6, "node_rsn"))]
        issue = dut.o_line.valid & dut.o_line.ready
        caller = dut.row_index
        for k in range(entries):
            with m.If(line.valid & (answer == k)):
                m.d.sync += [tags[k].eq(tags[k] - 1), index[k].eq(index[k] + 1)]
            with m.If(issue & (dut.o_line.p.tag == k)):
                m.d.sync += [tags[k].eq(dut.o_line.p.count), index[k].eq(0), owner[k].eq(caller)]

        # The tags of the cache, as its ports tell.
        tag = data.StructLayout({"valid": 1, "reserved": 1, "qpn": 1, "rsn": 8, "count": COUNT_BITS})
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
                             c.rsn.eq(fill.fill_node.rsn), c.count.eq(fill.fill_node.count)]
        with m.If(dropping):
            m.d.sync += [lives[victim.qpn].rsn.eq(lives[victim.qpn].rsn + victim.count),
                         lives[victim.qpn].retired.eq(lives[victim.qpn].retired + 1)]
        with m.If(match.flush_en):
            m.d.sync += lives[flushed].flush.eq(0)
        for q in range(QPS):
            up = fill.fill_en & (landing == q)
            down = evicting & (copies[fill.release_index].qpn == q)
            with m.If(up | down):
                m.d.sync += lives[q].landed.eq(lives[q].landed + up - down)
            back = [(t != 0) & (o == q) for t, o in zip(tags, owner, strict=True)]
            m.d.comb += lives[q].out.eq(sum(back))

        # What must hold.
        bound = {"bound": self.depth, "seconds": 280}
        at, some_lines = dut.o_line.p.line, dut.o_line.p.count
        inside = Cat((at >= b) & (at - b + some_lines <= n)
                     for b, n in zip(dut.extent_base, dut.extent_lines, strict=True))
        self.check("no fetch outside the extents", ~dut.o_line.valid | inside.any(), **bound)
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
        m.d.comb += [dut.view_en.eq(1), dut.view_index.eq(asked_qpn)]
        was = Signal(life)
        m.d.sync += was.eq(some)
        self.check("the list's row counts what landed", ~was.alive | ~dut.view.live | (
            dut.view.fetched == was.landed), **bound)
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
            with m.Elif((posting & (posted == q)) | demanded):
                m.d.sync += needed[q].eq(1)
            with m.If(dut.o_report.valid & (caller == q)):
                m.d.sync += errors[q].eq(1)
            with m.If(done & (qpn == q)):
                m.d.sync += errors[q].eq(0)
        patience = Signal(5)
        hungry = (some.alive & (some.linked != some.landed) & (some.landed == some.retired) & (some.out == 0)
                  & Array(needed)[asked_qpn] & ~Array(errors)[asked_qpn] & (reserved == 0)
                  & ~Cat(c.valid for c in copies).any())
        calm = (dut.o_line.ready & dut.o_report.ready & dut.o_qp_error.ready & ~busy & ~line.valid & ~posting
                & ~Cat(tags).any())
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
            self.cover("an untouched node is turned out", evicting, bound=70, seconds=200)
        self.cover("a node retires and its list fetches again", issue & (some.retired == 1) & (caller == asked_qpn),
                   bound=50, seconds=100)
        self.cover("a bad node breaks its list", dut.o_report.valid, bound=40)


class SmallPrefetchSpec(PrefetchSpec):
    """The same with a cache of 2 nodes, which is soon full."""

    name = "prefetch_small"
    depth, entries = 43, 2


SPECS = [PrefetchSpec, SmallPrefetchSpec]
MUTANTS = [
    (PrefetchSpec, [("with m.If(wanted & ~inside):", "with m.If(0):")]),
    (PrefetchSpec, [("& (ahead != 0) & ~ahead[-1]", "& 1")]),
    (PrefetchSpec, [("            row.live & ~row.busy & (self.linked", "            ~row.busy & (self.linked")]),
    (PrefetchSpec, [("            | (node.rsn != row.next_rsn)\n", "")]),
]
