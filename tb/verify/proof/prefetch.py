"""Proof of prefetcher, head cache and ahead table together: pointers, incarnations, tags, progress."""

from functools import partial
from types import SimpleNamespace

from amaranth.hdl import Array, Mux, Signal
from amaranth.lib import wiring

from weft.hdl.adamap.cache.chains import CacheChains
from weft.hdl.adamap.cache.head_cache import HeadCache, TagComparator
from weft.hdl.adamap.prefetch.ahead import AheadTable
from weft.hdl.adamap.prefetch.evict import Evict
from weft.hdl.adamap.prefetch.fetches import Fetches
from weft.hdl.adamap.prefetch.fill import Fill
from weft.hdl.adamap.prefetch.list_state import ListState, ReadBudget
from weft.hdl.adamap.prefetch.prefetch import Prefetch
from weft.hdl.adamap.prefetch.work_list import WorkList
from weft.hdl.contract.params import preset
from weft.tb.verify.proof.faulty import Faulty, faulty, mutant, named
from weft.tb.verify.proof.prefetch_checks import PLACES, bookkeeping, pointers, progress, rests, waiting
from weft.tb.verify.proof.prefetch_environment import FIRST_LINE, LINE_BITS, QPS, doorbells, driver, host, matcher
from weft.tb.verify.proof.prefetch_rest import start_at_rest
from weft.tb.verify.proof.specification import Spec
from weft.tb.verify.proof.work_list import NAMED


def events(spec, m, w):
    """Add the covers."""
    dut, incarnations, reads, qpn, busy, done, post = w.dut, w.incarnations, w.reads, w.qpn, w.busy, w.done, w.post
    posted, more, post_generation, receiver, line = w.posted, w.more, w.post_generation, w.receiver, w.line
    issue, caller, copies, fill, dropping, victim = w.issue, w.caller, w.copies, w.fill, w.dropping, w.victim
    evicting, filled_list, some_lines = w.evicting, w.filled_list, w.some_lines
    fill_counts, since, retirements, evictions = (Array(Signal(2, name=f"{name}{q}") for q in range(QPS)) for name in (
        "landings", "landings_of_read", "retirements", "evictions"))
    for q in range(QPS):
        m.d.sync += [fill_counts[q].eq(fill_counts[q] + (fill.fill_en & (filled_list == q) & ~fill_counts[q].all())),
                     since[q].eq(Mux(issue & (caller == q), 0, since[q] | (fill.fill_en & (filled_list == q)))),
                     retirements[q].eq(retirements[q] | (dropping & (victim.qpn == q))),
                     evictions[q].eq(evictions[q] | (evicting & (copies[fill.release_index].qpn == q)))]
    kept = spec.once(m, spec.inside("dut.fetches.keep_en", 1))
    # `ended`: the last fill of the list was a node without a successor. `refused`: a node without a successor was read
    # and has not filled an entry since.
    ended, refused = (Array(Signal(name=f"{name}{q}") for q in range(QPS)) for name in ("ended", "refused"))
    filled_at, null = Signal(7), line.valid & ~line.p.error & line.p.last & (w.word.next_line == 0)
    with m.If(fill.fill_en):
        m.d.sync += filled_at.eq(fill.fill_node.base_psn)
    for q in range(QPS):
        fills, back = fill.fill_en & (filled_list == q), evicting & (copies[fill.release_index].qpn == q)
        with m.If(fills | back | ~incarnations[q].alive):
            m.d.sync += ended[q].eq(fills & (fill.fill_node.next_line == 0))
        with m.If(fills | back | ~incarnations[q].alive | kept):
            m.d.sync += refused[q].eq(0)
        with m.Elif(null & (Array(w.owner)[line.p.tag] == q)):
            m.d.sync += refused[q].eq(1)
    broke = spec.once(m, dut.o_report.valid)
    destroying = spec.cycles(m, busy & incarnations[qpn].alive & (reads[qpn] != 0), 15)
    spec.cover("a node is filled", fill.fill_en)
    spec.cover("a bad node breaks its list", dut.o_report.valid)
    spec.cover("a doorbell of an earlier incarnation", post & (posted < QPS) & receiver.alive & (more != 0)
               & ((post_generation + 1)[:2] == receiver.generation))
    if spec.resting:
        spec.cover("a list ends and begins again elsewhere",
                   issue & ended[caller] & incarnations[caller].begins & (filled_at + 1 != dut.o_line.p.line))
        spec.cover("a last node is read again since its list grew", issue & refused[caller])
        spec.cover("a second node of a list is filled", fill.fill_en & (fill_counts[filled_list] == 1))
        spec.cover("a fetched node without a free entry is kept", kept)
        spec.cover("a kept node is filled", fill.fill_en & spec.inside("dut.fetches.kept", 1))
        spec.cover("one read for several nodes", issue & (some_lines > 1))
        spec.cover("several nodes of one read are filled", fill.fill_en & since[filled_list].any())
        spec.cover("a destroy waits for a fetch", (destroying == 8) & line.valid & line.p.last)
        spec.cover("an incarnation ends and the next one begins", done & ~incarnations[qpn].alive & (destroying == 0))
        spec.cover("an untouched node is evicted", evicting)
        spec.cover("an evicted node is fetched again",
                   issue & evictions[caller].any() & (fill_counts[caller] == 0))
        spec.cover("a head is forced to retire", dut.o_force.valid)
        spec.cover("a node retires and its list fetches again", issue & retirements[caller].any())
        spec.cover("idle again after a fill", w.resting & fill_counts[w.asked_qpn].any())
        spec.cover("idle again after an eviction", w.resting & evictions[w.asked_qpn].any())
        spec.cover("idle again after a list broke", w.resting & broke)


class PrefetchSpec(Spec):
    """Two QPs, a cache of 4 nodes, a hostile host memory, and a matcher that marks and drops at any time.

    The host memory returns anything, in any order: wrong pointers, null or not, QPNs, generations, counts, damage,
    failed reads. A check other than 0 represents one that does not match. Link doorbells have any QPN and generation
    and name any block; only those of a QP's present incarnation count. The driver is trusted to destroy and create
    alternately, each incarnation with another generation, and to have at most 14 linked nodes that are not retired. The
    work list has a queue of 4 entries. The QP table loses an entry before its list is destroyed, and gets one after the
    list is created. Lines and counts are a few bits wide, the rest of those words is zero. In 26 cycles a list is
    created and linked, one of its nodes is fetched and fills an entry or breaks the list, or a second list is read,
    too; longer sequences are covered from rest (:class:`RestingPrefetchSpec`).
    """

    name = "prefetch"
    block = Prefetch
    proof = {"bound": 26, "seconds": 900}
    entries, resting = 4, False

    def __init__(self, block=None, replaced=()):
        damage = ("reduce(xor, (rest.word_select(k, WORD_BITS) for k in range(len(rest) // WORD_BITS)))", "node.check")
        astray = ("reduce(xor, (pointer.word_select(k, NIBBLE_BITS) for k in range(len(pointer) // NIBBLE_BITS)))",
                  "node.next_check")
        parts = {WorkList: partial(NAMED, places=PLACES)} | dict(replaced)
        parts[Fetches] = mutant(parts.get(Fetches, Fetches), damage, astray)      # also of a faulty copy's node check
        parts[Evict] = named(parts.get(Evict, Evict),     # its register starts with any value
                               "victim, demand = Signal.like(self.peek_index), self.demand")
        super().__init__(block, parts)

    def specify(self, m):
        params = preset("test").with_(qps=QPS, cache_entries=self.entries, knit_extents=2, block_bits=9,
                                      prefetch_depth_max=4)
        m.submodules.dut = dut = self.block(params)
        m.submodules.cache = cache = HeadCache(params)
        m.submodules.table = table = AheadTable(params, readers=2)
        self.free_members(dut, "cache", "i_control", "ahead", "step", "qp", "post_stb", "post_qpn", "i_demand",
                          "i_line", "extent_base", "extent_lines", "prefetch_depth", "prefetch_watermark")
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
        granted = Signal()
        m.d.sync += granted.eq(dut.granted)
        self.assume(Mux(dut.exclusive, dut.granted | ~granted, ~dut.granted))
        w = SimpleNamespace(dut=dut, cache=cache, table=table, params=params)
        for part in (driver, doorbells, host, matcher):
            vars(w).update(vars(part(self, m, w)))
        w.errors = Signal(QPS, name="errors")     # lists with an error
        for part in (pointers, waiting, rests):
            vars(w).update(vars(part(self, m, w)))
        if self.resting:
            start_at_rest(self, m, w)
        vars(w).update(vars(bookkeeping(self, m, w)))
        progress(self, m, w)
        events(self, m, w)


class RestingPrefetchSpec(PrefetchSpec):
    """Prefetcher with a cache of 2 nodes, from any state at rest: no read is outstanding, the prefetcher is idle.

    The environment is that of :class:`PrefetchSpec`.

    Each QP has no list, a list with an error, or a list with any number of nodes linked ahead and any of its nodes in
    the cache, which may be full. A read for it may be kept, and the list may be in the work list. The search for a
    victim may have failed any number of times. The proof also checks that every later state at rest is such a state. So
    it covers runs of any length with rest between bursts as long as the bound. In 25 cycles a doorbell leads to a read,
    its nodes fill entries or are kept, and the prefetcher is at rest again. The covers show that this includes a node
    that was evicted, also one that is read again, and a list with an error. Of a burst that does not come to rest, the
    first 25 cycles are covered.
    """

    name = "prefetch_rest"
    proof = {"bound": 25, "seconds": 900}
    entries, resting = 2, True
    simplify = "&scorr -F 1"    # twice as fast here as the default


SPECS = [PrefetchSpec, RestingPrefetchSpec]
BOTH = (PrefetchSpec, RestingPrefetchSpec)
FAULTY = faulty(BOTH, [
    ("no fetch outside the extents", "with m.Elif(wanted & ~budget.inside):", "with m.Elif(0):"),
    ("no read crosses a page", "spare, page)))", "spare)))", ReadBudget),
    ("a list is checked at the block of its last node or doorbell",
     "o.block.eq(~row.inverse)", "o.block.eq(~row.inverse ^ 1)", ListState),
    ("the table gets the successor of a filled node",
     "step.p.block.eq(fill.found)", "step.p.block.eq(fill.found ^ 1)"),
    ("a list is read at the checked block",
     "self.o_line.p.line.eq(self._line)", "self.o_line.p.line.eq(self._line + 1)"),
    ("the table holds the next block of a list, or its end",
     "self.took & ~Mux(passed, kept.o.any(), some)", "self.took", AheadTable),
    ("the table holds the next block of a list, or its end", "~Mux(passed, kept.o.any(), some)", "~some", AheadTable),
    ("the table holds the next block of a list, or its end",
     "next_place.inverse.eq(~stray(params))", "next_place.inverse.eq(2)", AheadTable),
    ("a node without a successor is filled only if it was linked last",
     "more.eq(of.ahead != part + 1)", "more.eq(0)", Fill),
    ("a node without a successor is filled only if it was linked last",
     "decision.more.eq(more | self.posted)", "decision.more.eq(more)", Fill),
    ("a node without a successor is filled only if it was linked last",
     "~self.post_stb & ~same", "~self.post_stb", AheadTable),
    ("a node without a successor is filled only if it was linked last",
     "coming | (self.posted & ~self.soon)", "coming", ListState),
    ("a node without a successor is filled only if it was linked last",
     "coming | (self.posted & ~self.soon)", "(coming | self.posted) & ~self.soon", ListState),
    ("a list breaks for a pointer only if one was wrong when it was read",
     "with m.If(~final | ~fetch.all):", "with m.If(1):", Fill),
    ("a list breaks for a pointer only if one was wrong when it was read",
     "fetches.start.all.eq(lines == view.ahead)", "fetches.start.all.eq(0)"),
    ("a filled node is recorded with the number of its block",
     "cache.fill_block.eq(row.o.block)", "cache.fill_block.eq(row.o.block + 1)"),
    ("the number of a node is that of its address",
     "self.o_line.p.line.eq(self._line)", "self.o_line.p.line.eq(self._line + 1)"),
    ("each node is recorded with the number of its block",
     "cache.fill_block.eq(row.o.block)", "cache.fill_block.eq(row.o.block + 1)"),
    ("the cache holds each node", "entry_state.filled.eq(one_hot(1, fill.fill_index, n))",
     "entry_state.filled.eq(one_hot(1, fill.fill_index + 1, n))", CacheChains),
    ("the cache marks the head of each list",
     "entry_state.begins.eq(~goes_on.o)", "entry_state.begins.eq(0)", CacheChains),
    ("no fetch beyond the linked count",
     "depth_left, listed, left, spare, page))", "depth_left, left, spare, page))", ReadBudget),
    ("no fetch for a destroyed QP", "[step.valid.eq(1), self.i_control.ready.eq(step.ready & ~fetches.of_qpn[1])]",
     "self.i_control.ready.eq(~fetches.of_qpn[1])"),
    ("one fetch in flight per list",
     "view.live & ~fetches.of_qpn[0] & (view.ahead != 0)", "view.live & (view.ahead != 0)"),
    ("no fetch in flight after a destroy",
     "self.i_control.ready.eq(step.ready & ~fetches.of_qpn[1])", "self.i_control.ready.eq(step.ready)"),
    ("a filled node belongs to an existing QP and generation",
     "check.generation.eq(of.generation)", "check.generation.eq(check.node.generation)", Fetches),
    ("entries are reserved while free and filled while reserved",
     "cache.fill_index.eq(fill.entry)", "cache.fill_index.eq(fill.entry + 1)"),
    ("a lookup finds the entry that holds the RSN, and no other",
     "(slot[:bits] < self.count)", "(slot[:bits] <= self.count)", TagComparator),
    ("the first cached node of a list is its head",
     "entry_state.begins.eq(~goes_on.o)", "entry_state.begins.eq(0)", CacheChains),
    ("the count ahead is the number of linked and unfilled nodes",
     "+ added, count + added", "+ added, count + added + 1", AheadTable),
    ("the count ahead is the number of linked and unfilled nodes", "again | is_at(late, late_addr)", "again",
     AheadTable),
    ("the list of a destroyed QP is not live",
     "[step.valid.eq(1), self.i_control.ready.eq(step.ready & ~fetches.of_qpn[1])]",
     "self.i_control.ready.eq(~fetches.of_qpn[1])"),
    ("no read uses the slot of another",
     "self.free_slot.eq(priority_encode(~valid))", "self.free_slot.eq(0)", Fetches),
]) + faulty(RestingPrefetchSpec, [
    ("a list is checked at the block of its last node or doorbell",
     "step.p.block.eq(fill.found)", "step.p.block.eq(0)"),
    ("the table holds the next block of a list, or its end",
     "step.p.block.eq(self.cache.peek_block)", "step.p.block.eq(self.cache.peek_block ^ 1)"),
    ("a filled node was read at its address", "self.o_line.p.line.eq(self._line)",
     "self.o_line.p.line.eq(self._line + 1)"),
    ("no fetch beyond the linked count",
     "view.live & ~fetches.of_qpn[0] & (view.ahead != 0)", "view.live & ~fetches.of_qpn[0]"),
    ("no two entries hold the same RSN of a list", "fill.follows.eq(cache.follows)", "fill.follows.eq(1)"),
    ("every filled node is cached or retired, once", "cache.fill_index.eq(fill.entry)", "cache.fill_index.eq(0)"),
    ("the count ahead is the number of linked and unfilled nodes",
     "Cat(1, (step.p.kind == AheadKind.FILL).replicate(bits - 1))", "-1", AheadTable),
    ("at rest, the search and the work list are as this proof starts",
     "_count(m, fill.free_count, free)", "_count(m, fill.free_count, ~entry_state.reserved)", CacheChains),
    ("at rest, the cache holds the filled nodes only",
     "entry_state.heads.eq(heads)", "entry_state.heads.eq(0)", CacheChains),
    ("at rest, the nodes of a list are contiguous from its head",
     "self.peek_last & self.peek_valid", "self.peek_valid", Evict),
    ("at rest, the nodes of a list are linked in both directions",
     "before.data.eq(last)", "before.data.eq(last + 1)", CacheChains),
    ("at rest, every block lies where its node was read, or will be",
     "self.o_line.p.line.eq(self._line)", "self.o_line.p.line.eq(self._line + 1)"),
    ("at rest, a destroyed QP has no list",
     "[step.valid.eq(1), self.i_control.ready.eq(step.ready & ~fetches.of_qpn[1])]",
     "self.i_control.ready.eq(~fetches.of_qpn[1])"),
    ("at rest, no list is longer than it was linked",
     "view.live & ~fetches.of_qpn[0] & (view.ahead != 0)", "view.live & ~fetches.of_qpn[0]"),
    ("at rest, the table holds the next block of a list, or its error",
     "step.p.block.eq(fill.found)", "step.p.block.eq(0)"),
    ("at rest, a list has a next block, or no more was linked", "more.eq(of.ahead != part + 1)", "more.eq(0)", Fill),
    ("at rest, no more nodes are kept than were linked",
     "view.live & ~fetches.of_qpn[0] & (view.ahead != 0)", "view.live & ~fetches.of_qpn[0]"),
    ("at rest, a kept node was read at the next block of its list",
     "fetches.finish_en.eq(eviction.release_en & fetches.kept)", "fetches.finish_en.eq(0)"),
    ("at rest, a kept node was read in one extent", "with m.Elif(wanted & ~budget.inside):", "with m.Elif(0):"),
    ("at rest, a kept node ends its list where no more was linked, or with an error",
     "fetches.start.all.eq(lines == view.ahead)", "fetches.start.all.eq(0)"),
    ("at rest, no more nodes are kept than were linked",
     "fetches.start.all.eq(lines == view.ahead)", "fetches.start.all.eq(0)"),
    ("at rest, a kept node is the node that was read",
     "Cat(line.p.index, line_slot)", "Cat(~line.p.index, line_slot)", Fetches),
    ("no deadlock: a requester list fetches or breaks within 20 cycles",
     "view.live & ~fetches.of_qpn[0] & (view.ahead != 0)", "view.live & ~fetches.of_qpn[0] & (view.ahead > 12)"),
]) + [Faulty((RestingPrefetchSpec,), "at rest, a kept node belongs to a list with a next block", [
    ('m.next = "FORGET"', 'm.next = "IDLE"'),
    ("self.i_control.ready.eq(step.ready & ~fetches.of_qpn[1])", "self.i_control.ready.eq(step.ready)"),
])]
