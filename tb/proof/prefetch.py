"""What is proven of prefetcher, head cache and the count of linked nodes together: pointers, lives, tags, progress."""

from functools import partial

from amaranth.hdl import Array, Cat, Mux, Signal, Value
from amaranth.lib import data, wiring

from weft.hdl import abi
from weft.hdl.adamap.ahead import AheadTable
from weft.hdl.adamap.block import dead, find, in_extent, line_of, split
from weft.hdl.adamap.control import ControlKind
from weft.hdl.adamap.head_cache import HeadCache, Tag
from weft.hdl.adamap.node_check import NodeCheck
from weft.hdl.adamap.prefetch import PATIENCE, Prefetch
from weft.hdl.adamap.work_list import WorkList
from weft.hdl.layouts import NODE
from weft.hdl.params import preset
from weft.tb.proof.broken import Broken, mutant
from weft.tb.proof.specification import Spec

QPS = 2
LINE_BITS, COUNT_BITS, NODE_RSN_BITS, RSN_BITS = 4, 2, 4, 5
LEFT_BITS, LINKED_MAX = 4, 14     # nodes linked and not landed; and those in the cache, too
FIRST_LINE = 0x38       # lines are counted from here, so that some extents cross a page
PAGE_LINES = 64
IDLE, CLEAR, POSTED, LIST, ENTER = range(5)     # what a life's beginning or end waits for


def found(m, params, dut, at, name):
    """The number of the block at a line."""
    line = Signal(58, name=f"{name}_line")
    m.d.comb += line.eq(at)
    return find(m, params, dut.extent_base, dut.extent_lines, line, name=name)


class PrefetchSpec(Spec):
    """Two QPs, a cache of 4 nodes, a hostile host memory, a matcher that marks and drops as it likes.

    The host memory returns anything: wrong pointers, QPNs, generations, counts, damage, failed reads, in any order;
    a check word other than 0 stands for one that does not hold. Link doorbells may be of any QPN and generation; only
    those of a QP's present life count. The driver is trusted to destroy and create in turn, each life with another
    generation, and to have at most 14
    nodes linked that are not retired. The queue of work has 4 places. The QP table loses an entry
    before its list is destroyed, and gets one after the list is created. Lines and counts are a few bits wide, the
    rest of those words is zero.
    """

    name = "prefetch"
    block = Prefetch
    depth, entries, resting = 25, 4, False

    def __init__(self, block=None, replaced=()):
        damage = ("damage = reduce(xor, (block.word_select(k, WORD_BITS) for k in range(len(block) // WORD_BITS)))",
                  "damage = node.check")
        parts = {WorkList: partial(WorkList, places=4), NodeCheck: mutant(NodeCheck, damage)}
        super().__init__(block, {**parts, **dict(replaced)})

    def begin(self, m, dut, params, lives, copies, errors, resting):
        """Start as after a reset."""

    def specify(self, m):
        entries = self.entries
        params = preset("test").with_(qps=QPS, cache_entries=entries, knit_extents=2, block_bits=9,
                                      prefetch_depth_max=4)
        m.submodules.dut = dut = self.block(params)
        m.submodules.cache = cache = HeadCache(params)
        m.submodules.table = table = AheadTable(params, readers=2)
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
            base = 8 * k + 1 if self.resting else self.constant(m, LINE_BITS, f"base{k}")
            m.d.comb += [dut.extent_base[k].eq(FIRST_LINE + base),
                         dut.extent_lines[k].eq(self.constant(m, LINE_BITS, f"lines{k}"))]
        m.d.comb += [dut.prefetch_depth.eq(self.constant(m, 2, "depth") + 1),
                     dut.prefetch_watermark.eq(self.constant(m, 2, "watermark") + 1),
                     dut.i_demand.valid.eq(self.free(1, "demand")), dut.i_demand.payload.eq(self.free(1, "demands"))]
        self.assume(~dut.granted | dut.exclusive)

        # Life of the QPs, one operation at a time. Creation: count of linked nodes, prefetcher, QP table; destruction:
        # QP table, prefetcher, matcher.
        life = data.StructLayout({"alive": 1, "flush": 1, "state": 3, "generation": 2, "left": LEFT_BITS,
                                  "cached": range(entries + 1), "rsn": RSN_BITS, "line": 7,
                                  "block": params.block_bits})
        lives = Array(Signal(life, name=f"life{q}") for q in range(QPS))
        reads = Array(Signal(3, name=f"reads{q}") for q in range(QPS))      # in flight
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
                        m.d.sync += [own.alive.eq(1), own.cached.eq(0), own.left.eq(0),
                                     own.line.eq(op.p.line), own.generation.eq(generation), stage.eq(ENTER),
                                     own.block.eq(found(m, params, dut, op.p.line, "created"))]
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
        self.assume(~posting | (receiver.left + receiver.cached <= LINKED_MAX - 3))

        # The read engine: any answer, in any order.
        tags = [Signal(3, name=f"read{k}") for k in range(entries)]      # lines still to come
        index = Array(Signal(2, name=f"index{k}") for k in range(entries))
        first = Array(Signal(7, name=f"first{k}") for k in range(entries))
        owner = [Signal(1, name=f"owner{k}") for k in range(entries)]
        answer = self.free(range(entries), "answer_tag")
        line = dut.i_line
        word = data.View(NODE, line.p.data)
        m.d.comb += [line.valid.eq(self.free(1, "answer") & (Array(tags)[answer] != 0)), line.p.tag.eq(answer),
                     line.p.last.eq(Array(tags)[answer] == 1), line.p.index.eq(index[answer]),
                     line.p.error.eq(self.free(1, "error")),
                     word.next_line.eq(FIRST_LINE + self.free(LINE_BITS, "next_line")),
                     word.next_adjacent.eq(self.free(1, "next_adjacent")), word.qpn.eq(self.free(1, "node_qpn")),
                     word.generation.eq(self.free(2, "node_generation")), word.encoding.eq(self.free(2, "encoding")),
                     word.count.eq(self.free(COUNT_BITS, "count")), word.rsn.eq(self.free(NODE_RSN_BITS, "node_rsn")),
                     word.base_psn.eq(first[answer] + index[answer]),       # tells where it was read
                     word.check.eq(self.free(1, "damage"))]
        issue = dut.o_line.valid & dut.o_line.ready
        caller = dut.row_index
        for k in range(entries):
            with m.If(line.valid & (answer == k)):
                m.d.sync += [tags[k].eq(tags[k] - 1), index[k].eq(index[k] + 1)]
            with m.If(issue & (dut.o_line.p.tag == k)):
                m.d.sync += [tags[k].eq(dut.o_line.p.count), index[k].eq(0), owner[k].eq(caller),
                             first[k].eq(dut.o_line.p.line)]

        # The tags of the cache, as its ports tell.
        tag = data.StructLayout({"valid": 1, "reserved": 1, "qpn": 1, "rsn": RSN_BITS, "count": COUNT_BITS,
                                 "line": 7, "block": params.block_bits})
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
                             c.line.eq(fill.fill_node.base_psn), c.block.eq(lives[landing].block)]
        behind = found(m, params, dut, fill.fill_node.next_line, "behind")
        with m.If(dropping):
            m.d.sync += lives[victim.qpn].rsn.eq(lives[victim.qpn].rsn + victim.count)
        with m.If(match.flush_en):
            m.d.sync += lives[flushed].flush.eq(0)
        for q in range(QPS):
            up = fill.fill_en & (landing == q)
            down = evicting & (copies[fill.release_index].qpn == q)
            others = Cat(c.valid & (c.qpn == q) & ~(dropping & (dropped == k)) for k, c in enumerate(copies))
            with m.If(up):
                m.d.sync += [lives[q].line.eq(fill.fill_node.next_line),
                             lives[q].block.eq(behind)]
                with m.If(~others.any()):       # the first node of an empty list may have any RSN
                    m.d.sync += lives[q].rsn.eq(fill.fill_node.rsn)
            with m.Elif(down):
                m.d.sync += [lives[q].line.eq(copies[fill.release_index].line),
                             lives[q].block.eq(copies[fill.release_index].block)]
            v, retires = lives[q], dropping & (victim.qpn == q)
            with m.If(~(done & ~v.alive & (qpn == q))):
                m.d.sync += [v.left.eq(v.left + Mux(posting & (posted == q), more, 0) + down - up),
                             v.cached.eq(v.cached + up - down - retires)]
            back = [(t != 0) & (o == q) for t, o in zip(tags, owner, strict=True)]
            m.d.comb += reads[q].eq(sum(back))

        errors = Signal(QPS, name="errors")     # lists that broke

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
                   ~dut.o_line.valid | (some_lines <= lives[caller].left), **bound)
        self.check("no fetch for a dead QP", ~dut.o_line.valid | lives[caller].alive, **bound)
        self.check("one fetch in flight per list", ~issue | (reads[caller] == 0), **bound)
        self.check("no fetch in flight after a destroy", ~done | ~lives[qpn].alive | (reads[qpn] == 0), **bound)
        self.check("what lands is of a living QP and generation", ~fill.fill_en | (
            lives[landing].alive & (fill.fill_node.generation == lives[landing].generation)), **bound)
        self.check("entries are taken free and filled when taken", ~(
            fill.reserve_en & (~fill.free | copies[fill.free_index].valid | copies[fill.free_index].reserved)
            | fill.fill_en & ~copies[fill.fill_index].reserved), **bound)
        asked_qpn, asked_rsn = self.constant(m, 1, "some_qpn"), self.constant(m, RSN_BITS, "some_rsn")
        hits = [c.valid & (c.qpn == asked_qpn) & ((asked_rsn - c.rsn)[:RSN_BITS] < c.count) for c in copies]
        if self.resting:
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
        if self.resting:
            self.check("every node landed is cached or retired, once",
                       ~some.alive | (sum(held) == some.cached), **bound)
        quiet = Signal(2)
        m.d.comb += [table.read_en[1].eq(1), table.read_index[1].eq(asked_qpn)]
        with m.If(post | dut.step.valid):
            m.d.sync += quiet.eq(0)
        with m.Else():
            m.d.sync += quiet.eq(quiet + (quiet != 2))
        stepped, back, whose = Signal(), Signal(), Signal(1)        # on its way into the table
        m.d.sync += [stepped.eq(dut.step.valid & dut.step.ready), back.eq(dut.step.p.back), whose.eq(dut.step.p.qpn)]
        rows = Array(self.inside(f"table.memory[{q}]", params.block_bits) for q in range(QPS))
        ahead = Signal(params.block_bits)
        m.d.comb += ahead.eq(rows[asked_qpn] + Mux(table.took & (table.took_qpn == asked_qpn), table.took_nodes, 0)
                             + (stepped & (whose == asked_qpn) & back) - (stepped & (whose == asked_qpn) & ~back))
        self.check("the count ahead is what was linked and has not landed",
                   ~some.alive | (ahead == some.left) & ((quiet != 2) | (table.read_data[1] == some.left)), **bound)
        calm = Signal(2)
        with m.If(dut.idle & (stage == IDLE) & ~flushing & ~post & ~dut.post_stb & ~dropping):
            m.d.sync += calm.eq(calm + (calm != 3))
        with m.Else():
            m.d.sync += calm.eq(0)
        self.begin(m, dut, params, lives, copies, errors,
                   dut.idle & (stage == IDLE) & ~flushing & (calm == 3) & ~table.took & ~stepped)
        m.d.comb += [dut.view_en.eq(1), dut.view_index.eq(asked_qpn)]
        was = Signal(init=1)
        m.d.sync += was.eq(some.alive)
        self.check("a dead QP's list is not live", was | ~dut.view_live, **bound)
        reserved = sum(c.reserved for c in copies)
        self.check("every read in flight has its entry", reserved >= sum(t != 0 for t in tags), **bound)

        # Ranking: a living list with linked nodes and an empty cache fetches, or breaks, in a bounded time after a
        # doorbell or a demand. A list whose node was turned out must be demanded anew.
        needed = Signal(QPS)
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
        hungry = (some.alive & (some.left != 0) & (some.cached == 0) & (reads[asked_qpn] == 0)
                  & Array(needed)[asked_qpn] & ~Array(errors)[asked_qpn] & (reserved == 0)
                  & ~Cat(c.valid for c in copies).any())
        undisturbed = (dut.o_line.ready & dut.o_report.ready & dut.o_qp_error.ready & ~busy & ~line.valid & ~post
                & ~Cat(tags).any() & ~match.mark_en & (~dut.exclusive | dut.granted)
                & (~dut.o_force.valid | dut.o_force.ready))
        with m.If(hungry & undisturbed & ~issue):
            m.d.sync += patience.eq(patience + (patience != 31))
        with m.Else():
            m.d.sync += patience.eq(0)
        if self.resting:
            self.check("no deadlock: a hungry list fetches or breaks within 16 cycles", patience <= 16, **bound)

        # Events are counted from the start of the run, whatever came before it.
        landings, since, retirements, evictions = (Array(Signal(2, name=f"{name}{q}") for q in range(QPS)) for name in (
            "landings", "landings_of_read", "retirements", "evictions"))
        for q in range(QPS):
            m.d.sync += [landings[q].eq(landings[q] + (fill.fill_en & (landing == q) & ~landings[q].all())),
                         since[q].eq(Mux(issue & (caller == q), 0, since[q] | (fill.fill_en & (landing == q)))),
                         retirements[q].eq(retirements[q] | (dropping & (victim.qpn == q))),
                         evictions[q].eq(evictions[q] | (evicting & (copies[fill.release_index].qpn == q)))]
        dying = Signal(4)
        with m.If(busy & lives[qpn].alive & (reads[qpn] != 0)):
            m.d.sync += dying.eq(dying + (dying != 15))
        with m.Else():
            m.d.sync += dying.eq(0)
        self.cover("a node lands", fill.fill_en)
        self.cover("a bad node breaks its list", dut.o_report.valid)
        self.cover("a doorbell of a former life", post & (posted < QPS) & receiver.alive & (more != 0)
                   & ((post_generation + 1)[:2] == receiver.generation))
        if self.resting:
            self.cover("a second node of a list lands", fill.fill_en & (landings[landing] == 1))
            self.cover("one read for several nodes", issue & (some_lines > 1))
            self.cover("several nodes of one read land", fill.fill_en & since[landing].any())
            self.cover("a destroy waits for a fetch", (dying == 8) & line.valid & line.p.last)
            self.cover("a life ends and the next one begins", done & ~lives[qpn].alive & (dying == 0))
            self.cover("an untouched node is turned out", evicting)
            self.cover("a node that was turned out is fetched again",
                       issue & evictions[caller].any() & (landings[caller] == 0))
            self.cover("a head is asked to go early", dut.o_force.valid)
            self.cover("a node retires and its list fetches again", issue & retirements[caller].any())


class RestingPrefetchSpec(PrefetchSpec):
    """The same with a cache of 2 nodes, from any state at rest: nothing is under way, but there are any lists.

    Each QP has a list or none, a broken one, one of any length linked ahead, with any nodes of it in the cache, which
    may be full; the search for a node to turn out may have failed any number of times. That the state is such a one
    again whenever there is rest again is checked, too: so runs of any length are seen that come to rest between
    bursts as long as the bound.
    """

    name = "prefetch_rest"
    depth, entries, resting = 22, 2, True

    def begin(self, m, dut, params, lives, copies, errors, resting):
        """Start at rest; check that every rest is like it."""
        entries = range(self.entries)
        self.start_anywhere(
            "dut.victim", "dut.misses", "dut.next_blocks", "dut.wake_stb", "dut.waked", "dut.work.entered",
            "dut.work.left", "table.memory", "cache.blocks", "cache.fill__free_count", "errors",
            *[f"cache.tag{k}" for k in entries], *[f"copy{k}" for k in entries], *[f"life{q}" for q in range(QPS)])
        misses = self.inside("dut.misses", 8)
        free_count = self.inside("cache.fill__free_count", range(self.entries + 1))
        tags = [self.inside(f"cache.tag{k}", Tag) for k in entries]
        blocks = [self.inside(f"cache.blocks[{k}]", params.block_bits) for k in entries]
        nexts = [self.inside(f"dut.next_blocks[{q}]", params.block_bits + 1) for q in range(QPS)]
        ahead = [self.inside(f"table.memory[{q}]", params.block_bits) for q in range(QPS)]
        work = [self.inside(f"dut.work.{name}[{q}]", 1) for q in range(QPS) for name in ("entered", "left")]
        searching = [misses <= 4 * self.entries + PATIENCE,
                     free_count == sum(~tag.valid & ~tag.reserved for tag in tags),
                     *(work[2 * q] == work[2 * q + 1] for q in range(QPS))]
        cached, chained, lying, ended, counted, going_on = [], [], [], [], [], []
        for k, (tag, copy, block) in enumerate(zip(tags, copies, blocks, strict=True)):
            v, before = lives[copy.qpn], Signal(self.entries, name=f"before{k}")
            twin = Signal(self.entries, name=f"twin{k}")
            for other, c in enumerate(copies):
                own = c.valid & (c.qpn == copy.qpn) & (other != k)
                m.d.comb += [before[other].eq(own & ((c.rsn + c.count)[:RSN_BITS] == copy.rsn)),
                             twin[other].eq(own & (c.rsn == copy.rsn))]
            head = copy.rsn == v.rsn
            cached += [~copy.reserved, ~tag.reserved, tag.valid == copy.valid, ~copy.valid | (
                v.alive & (tag.qpn == copy.qpn) & (tag.rsn == copy.rsn) & (tag.count == copy.count)
                & (tag.generation == v.generation) & (tag.head == head) & (copy.count != 0)
                & (copy.rsn < 1 << NODE_RSN_BITS) & (block == copy.block))]
            chained.append(~copy.valid | ((head | before.any()) & ~twin.any()))
            lying.append(~copy.valid | self.lies(params, dut, copy))
        for q, v in enumerate(lives):
            following = Signal(params.block_bits, name=f"following{q}")
            m.d.comb += following.eq(~nexts[q][:params.block_bits])
            ended += [~v.flush, v.state == Mux(v.alive, abi.QpState.RTS.value, abi.QpState.RESET.value),
                      v.alive | ((following == dead(params)) & ~errors[q])]
            counted.append(v.left + v.cached <= LINKED_MAX)
            self.assume_first(~v.alive | (sum(c.valid & (c.qpn == q) for c in copies) == v.cached))
            self.assume_first(~v.alive | (ahead[q] == v.left))
            going_on.append(~v.alive | (following == Mux(errors[q], dead(params), v.block)))
            its = found(m, params, dut, v.line, f"found{q}")      # one of several where extents overlap
            lying.append(~v.alive | (v.block == its) | self.lies(params, dut, v))
        for name, sane in (
            ("the search and the work list are as this proof starts", searching),
            ("the cache holds what landed, nothing else", cached),
            ("the nodes of a list follow each other from its head", chained),
            ("every block lies where its node was read, or will be", lying),
            ("a dead QP has no list", ended),
            ("no list is longer than it was linked", counted),
            ("a list goes on where its last node says, or is broken", going_on),
        ):
            self.assume_first(Cat(Value.cast(s).any() for s in sane).all())
            self.check(f"at rest, {name}", ~resting | Cat(Value.cast(s).any() for s in sane).all(),
                       bound=self.depth, seconds=900)

    def lies(self, params, dut, what):
        """Its block lies in its extent, at its line."""
        extent, offset = split(params, what.block)
        return (offset < in_extent(params, dut.extent_lines, extent)) & (
            line_of(params, dut.extent_base, what.block) == what.line)


SPECS = [PrefetchSpec, RestingPrefetchSpec]
BOTH = (PrefetchSpec, RestingPrefetchSpec)
BROKEN = [
    Broken(BOTH, "no fetch outside the extents", ("with m.If(wanted & ~inside):", "with m.If(0):")),
    Broken(BOTH, "no read crosses a page",
           [("Mux(adjacent, several, 1)", "several"), ("least(within, page_left)", "within")]),
    Broken(BOTH, "a list is read where its last node or its creation said", ("after.eq(first_block)", "after.eq(0)")),
    Broken(BOTH, "what lands was read there, and its block is known by that number",
           ("cache.fill_block.eq(block)", "cache.fill_block.eq(block + 1)")),
    Broken(BOTH, "no fetch beyond the linked count", ("live & ~busy & (ahead != 0)", "live & ~busy")),
    Broken(RestingPrefetchSpec, "no fetch beyond the linked count",
           ("space.eq(least(at_most(LINES, self.prefetch_depth - cached), at_most(LINES, ahead)))",
            "space.eq(at_most(LINES, self.prefetch_depth - cached))")),
    Broken(BOTH, "no fetch for a dead QP",
           ("write.en.eq(1),\n                            wake.eq(1),", "write.en.eq(0),")),
    Broken(BOTH, "one fetch in flight per list", ("live & ~busy & (ahead != 0)", "live & (ahead != 0)")),
    Broken(BOTH, "no fetch in flight after a destroy",
           ("self.i_control.ready.eq(~of_control),", "self.i_control.ready.eq(1),")),
    Broken(BOTH, "what lands is of a living QP and generation",
           ("check.generation.eq(fetch.generation)", "check.generation.eq(node.generation)")),
    Broken(BOTH, "entries are taken free and filled when taken",
           ("cache.fill_index.eq(fetch.entries[part])", "cache.fill_index.eq(fetch.entries[part] + 1)")),
    Broken(RestingPrefetchSpec, "no RSN of a list in two entries",
           ("check.follows.eq(cache.follows)", "check.follows.eq(1)")),
    Broken(BOTH, "a lookup finds the entry that holds the RSN, and no other",
           ("(slots[k] < tag.count)", "(slots[k] <= tag.count)"), of=HeadCache),
    Broken(BOTH, "the first cached node of a list is its head",
           ("tag.head.eq(~others.any())", "tag.head.eq(0)"), of=HeadCache),
    Broken(RestingPrefetchSpec, "every node landed is cached or retired, once",
           ("cache.fill_index.eq(fetch.entries[part])", "cache.fill_index.eq(0)")),
    Broken(BOTH, "the count ahead is what was linked and has not landed",
           ("check.data + nodes", "check.data + nodes + 1"), of=AheadTable),
    Broken(RestingPrefetchSpec, "the count ahead is what was linked and has not landed",
           ("Mux(back, check.data + 1, check.data - 1)", "check.data - 1"), of=AheadTable),
    Broken(RestingPrefetchSpec, "at rest, the search and the work list are as this proof starts",
           ("sum(~tag.valid & ~tag.reserved for tag in tags)", "sum(~tag.reserved for tag in tags)"), of=HeadCache),
    Broken(RestingPrefetchSpec, "at rest, the cache holds what landed, nothing else",
           ("tag.count.eq(node.count)]", "tag.count.eq(node.count + 1)]"), of=HeadCache),
    Broken(RestingPrefetchSpec, "at rest, the nodes of a list follow each other from its head",
           ("check.follows.eq(cache.follows)", "check.follows.eq(1)")),
    Broken(RestingPrefetchSpec, "at rest, every block lies where its node was read, or will be",
           ("self.o_line.p.line.eq(line)", "self.o_line.p.line.eq(line + 1)")),
    Broken(RestingPrefetchSpec, "at rest, a dead QP has no list",
           ("write.en.eq(1),\n                            wake.eq(1),", "write.en.eq(0),")),
    Broken(RestingPrefetchSpec, "at rest, no list is longer than it was linked",
           ("live & ~busy & (ahead != 0)", "live & ~busy")),
    Broken(RestingPrefetchSpec, "at rest, a list goes on where its last node says, or is broken",
           ("after.eq(first_block)", "after.eq(0)")),
    Broken(RestingPrefetchSpec, "at rest, a list goes on where its last node says, or is broken",
           ("after.eq(cache.peek_block),", "after.eq(hungry),")),
    Broken(BOTH, "a dead QP's list is not live",
           ("self.view_live.eq(view.data.inverse != 0)", "self.view_live.eq(1)")),
    Broken(BOTH, "every read in flight has its entry", ("cache.reserve_en.eq(1)", "cache.reserve_en.eq(0)")),
    Broken(RestingPrefetchSpec, "no deadlock: a hungry list fetches or breaks within 16 cycles",
           ("live & ~busy & (ahead != 0)", "live & ~busy & (ahead > 12)")),
]
