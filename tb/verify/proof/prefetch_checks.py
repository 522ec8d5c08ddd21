"""Checks of prefetcher, head cache and ahead table.

Each part is a function that adds its checks to ``spec`` and returns signals; ``w`` holds those of the parts before.
"""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import data

from weft.hdl.adamap.cache.cached import cached_tag, line_of, null_block
from weft.hdl.adamap.prefetch.ahead import AheadKind, ahead_place, ahead_row
from weft.hdl.contract import abi
from weft.hdl.part.layouts import REPORT_EVENT
from weft.tb.verify.proof.prefetch_environment import IDLE, QPS, RSN_BITS, inside

PAGE_LINES = 64
PLACES = 4      # of the queue of the work list


def pointers(spec, m, w):
    """Check the addresses of reads, the nodes that fill entries, the state of the cache, and the count ahead."""
    dut, table, params, reads, qpn, done = w.dut, w.table, w.params, w.reads, w.qpn, w.done
    incarnations = w.incarnations
    post, issue, caller, copies, fill, match = w.post, w.issue, w.caller, w.copies, w.fill, w.match
    filled_list = w.filled_list
    at, some_lines = dut.o_line.p.line, dut.o_line.p.count
    extents = Cat((at >= b) & (at - b + some_lines <= n)
                 for b, n in zip(dut.extent_base, dut.extent_lines, strict=True))
    spec.check("no fetch outside the extents", ~dut.o_line.valid | extents.any())
    spec.check("no read crosses a page", ~dut.o_line.valid | (at[:6] + some_lines <= PAGE_LINES))
    rows = [data.View(ahead_row(params), Cat(spec.inside(f"table.counts[{q}]", params.block_bits),
                                             spec.inside(f"table.places[{q}]", ahead_place(params))))
            for q in range(QPS)]
    spec.check("the table gets the successor of a filled node", ~fill.fill_en | (dut.step.p.block == w.behind))
    # After a doorbell with a block, the check of the block's number suffices: a check below relates it to the line.
    if spec.resting:
        spec.check("a filled node was read at its address", ~fill.fill_en | incarnations[filled_list].begins
                   | (fill.fill_node.base_psn == incarnations[filled_list].line))
    spec.check("a filled node is recorded with the number of its block",
               ~fill.fill_en | (fill.fill_block == incarnations[filled_list].block))
    blocks = [spec.inside(f"cache.chains.blocks[{k}]", params.block_bits) for k in range(spec.entries)]
    spec.check("each node is recorded with the number of its block",
               Cat(~c.valid | (c.block == block) for c, block in zip(copies, blocks, strict=True)).all(),
               given=["a filled node is recorded with the number of its block"])
    spec.check("no fetch for a destroyed QP", ~dut.o_line.valid | incarnations[caller].alive)
    spec.check("one fetch in flight per list", ~issue | (reads[caller] == 0))
    spec.check("no fetch in flight after a destroy", ~done | ~incarnations[qpn].alive | (reads[qpn] == 0))
    spec.check("a filled node belongs to an existing QP and generation", ~fill.fill_en | (
        incarnations[filled_list].alive & (fill.fill_node.generation == incarnations[filled_list].generation)))
    spec.check("entries are reserved while free and filled while reserved", ~(
        fill.reserve_en & (~fill.free | copies[fill.free_index].valid | copies[fill.free_index].reserved)
        | fill.fill_en & ~copies[fill.fill_index].reserved))
    asked_qpn, asked_rsn = spec.constant(m, 1, "some_qpn"), spec.constant(m, RSN_BITS, "some_rsn")
    hits = [c.valid & (c.qpn == asked_qpn) & ((asked_rsn - c.rsn)[:RSN_BITS] < c.count) for c in copies]
    if spec.resting:
        spec.check("no two entries hold the same RSN of a list", sum(hits) <= 1)
    tags = [spec.inside(f"cache.tags.tag{k}", cached_tag(params)) for k in range(spec.entries)]
    valid, first = (spec.inside(f"cache.chains.entry_state.{name}", spec.entries) for name in ("valid", "head"))
    spec.check("the cache holds each node", Cat((valid[k] == c.valid) & (~c.valid | (
        (tag.qpn == c.qpn) & (tag.rsn == c.rsn) & (tag.count == c.count)))
        for k, (tag, c) in enumerate(zip(tags, copies, strict=True))).all())
    spec.check("the cache marks the head of each list",
               Cat(~c.valid | ~incarnations[c.qpn].alive | (first[k] == (c.rsn == incarnations[c.qpn].rsn))
                   for k, c in enumerate(copies)).all(), given=["the cache holds each node"])
    shown = Signal()
    m.d.comb += match.rsn.eq(asked_rsn)
    m.d.sync += shown.eq(match.qpn == asked_qpn)
    flat = shown & ~incarnations[asked_qpn].flush
    spec.check("a lookup finds the entry that holds the RSN, and no other",
               (match.hit == sum(hits).any()) | ~flat | ~incarnations[asked_qpn].alive,
               given=["the cache holds each node"])
    held = [c.valid & (c.qpn == asked_qpn) for c in copies]
    heads = [h & (c.rsn == incarnations[asked_qpn].rsn) for h, c in zip(held, copies, strict=True)]
    spec.check("the first cached node of a list is its head", ~flat | ~incarnations[asked_qpn].alive | (
        (match.head == Cat(held).any()) & (match.head == sum(heads).any())),
               given=["the cache holds each node", "the cache marks the head of each list"])
    some = incarnations[asked_qpn]
    if spec.resting:
        spec.check("every filled node is cached or retired, once", ~some.alive | (sum(held) == some.cached))
    m.d.comb += [table.read_en[1].eq(1), table.read_index[1].eq(asked_qpn)]
    quiet = spec.cycles(m, ~(post | w.coming | dut.step.valid), 2)
    stepped, up, down, owner = Signal(), Signal(), Signal(), Signal(1)      # in the pipeline of the table
    m.d.sync += [stepped.eq(dut.step.valid & dut.step.ready), owner.eq(dut.step.p.qpn),
                 up.eq(dut.step.p.kind == AheadKind.BACK), down.eq(dut.step.p.kind == AheadKind.FILL)]
    row, ahead = Signal(ahead_row(params)), Signal(params.block_bits)
    m.d.comb += row.eq(Array(rows)[asked_qpn])
    m.d.comb += ahead.eq(row.count + Mux(table.took & (table.took_qpn == asked_qpn), table.took_nodes, 0)
                         + (stepped & (owner == asked_qpn) & up) - (stepped & (owner == asked_qpn) & down))
    spec.check("the count ahead is the number of linked and unfilled nodes",
               ~some.alive | (ahead == some.left) & ((quiet != 2) | (table.read_data[1].count == some.left)))
    spec.check("a node without a successor is filled only if it was linked last",
               ~fill.fill_en | (filled_list != asked_qpn) | (fill.fill_node.next_line != 0) | (some.left == 1),
               given=["the count ahead is the number of linked and unfilled nodes"])
    spec.check("no fetch beyond the linked count",
               ~dut.o_line.valid | (caller != asked_qpn) | (some_lines <= some.left),
               given=["the count ahead is the number of linked and unfilled nodes"])
    # A write in progress counts. A list with an error ends before the error is reported, and the list of a QP that is
    # being destroyed ends before the incarnation does.
    placed = spec.inside("table.place__en", 1) & (spec.inside("table.place__addr", 1) == asked_qpn)
    goes_on, of_it = Signal(params.block_bits), spec.inside("dut.qpn", 1) == asked_qpn
    m.d.comb += goes_on.eq(~Mux(placed, spec.inside("table.place__data", ahead_place(params)).inverse, row.inverse))
    ends = (w.busy & (qpn == asked_qpn)) | ((spec.inside("dut.broken.fsm_state", 2) != 0) & of_it)
    broke = w.errors.bit_select(asked_qpn, 1)
    spec.check("the table holds the next block of a list, or its end", ~some.alive
               | ((goes_on == some.block) & ~broke) | ((goes_on == null_block(params)) & (broke | ends)),
               given=["the table gets the successor of a filled node",
                      "each node is recorded with the number of its block",
                      "the count ahead is the number of linked and unfilled nodes"])
    spec.check("a list is checked at the block of its last node or doorbell",
               ~dut.o_line.valid | (caller != asked_qpn) | (w.looked_at.block == some.block),
               given=["the table holds the next block of a list, or its end"])
    # The check of the block's number suffices: the check after this one relates it to the line.
    spec.check("a list is read at the checked block", ~dut.o_line.valid
               | (caller != asked_qpn) | (at == line_of(params, dut.extent_base, some.block)),
               given=["a list is checked at the block of its last node or doorbell"])
    spec.check("the number of a node is that of its address", ~fill.fill_en | (filled_list != asked_qpn) | w.read_there,
               given=["a filled node was read at its address"] * spec.resting + ["a list is read at the checked block"])
    reason = data.View(REPORT_EVENT, dut.o_report.p.entry).reason
    spec.check("a list breaks for a pointer only if one was wrong when it was read",
               ~dut.o_report.valid | (caller != asked_qpn) | (reason != abi.Reason.BAD_POINTER.value)
               | w.cut.bit_select(asked_qpn, 1) | (((some.line != 0) | some.begins) & ~inside(params, dut, some.block)),
               given=["the count ahead is the number of linked and unfilled nodes",
                               "the table holds the next block of a list, or its end"])
    return SimpleNamespace(rows=rows, kept_blocks=blocks, kept_tags=tags, kept_valid=valid,
                           kept_heads=first, asked_qpn=asked_qpn, some=some, some_lines=some_lines, stepped=stepped)


def waiting(spec, m, w):
    """Return the QPs in each entry of the queue of the work list."""
    queue, places = "dut.work.queue.queue", range(PLACES)
    level, consume = spec.inside(f"{queue}.level", range(PLACES + 1)), spec.inside(f"{queue}.consume", places)
    storage = Array(spec.inside(f"{queue}.storage[{k}]", 1) for k in places)
    queued = [[(k < level) & (storage[(consume + k)[:len(consume)]] == q) for k in places] for q in range(QPS)]
    return SimpleNamespace(queued=queued, level=level, consume=consume)


def rests(spec, m, w):
    """Return a signal for rest: prefetcher idle, no read outstanding or in the pipeline, no event for some cycles."""
    dut, table, stage, flushing, dropping = w.dut, w.table, w.stage, w.flushing, w.dropping
    post = w.post | w.coming
    stepped, queued = w.stepped, w.queued
    calm = spec.cycles(m, (stage == IDLE) & ~flushing & ~post & ~dut.post_stb & ~dropping, 3)
    waits = spec.inside("dut.fsm_state", 4) == 0
    coming = Cat(spec.inside(f"dut.work.{name}_q", 1) for name in ("valid", "scanning", "missed")).any()
    twice = Cat(sum(of) > 1 for of in queued).any()
    resting = (waits & spec.inside("dut.fetches.quiet", 1) & (stage == IDLE) & ~flushing & (calm == 3) & ~table.took
               & ~stepped & ~coming & ~twice)
    return SimpleNamespace(resting=resting)


def bookkeeping(spec, m, w):
    """Check that lists of destroyed QPs are not live, and that every read has a separate slot."""
    dut, tags, copies, asked_qpn, some = w.dut, w.tags, w.copies, w.asked_qpn, w.some
    was = Signal(2, init=3)     # it exists, or is being created
    m.d.sync += was.eq(Cat(some.alive | (w.busy & (w.qpn == asked_qpn)), was))
    spec.check("the list of a destroyed QP is not live", was.any() | (w.table.read_data[1].inverse == 0))
    reserved = sum(c.reserved for c in copies)
    spec.check("no read uses the slot of another",
               ~w.issue | ((Array(tags)[dut.o_line.p.tag] == 0) & ~spec.inside("dut.fetches.valid", spec.entries)
                           .bit_select(dut.o_line.p.tag, 1)))
    return SimpleNamespace(reserved=reserved)


def progress(spec, m, w):
    """Check progress: a live list with linked nodes and an empty cache fetches, or breaks, in a bounded time.

    The check applies after a doorbell or a demand that arrived while there was a free entry: a list without a waiting
    header must be demanded again if it found no free entry, or if its node was evicted.
    """
    dut, table, incarnations, reads, qpn, busy, done = w.dut, w.table, w.incarnations, w.reads, w.qpn, w.busy, w.done
    post, tags, line, issue, caller, copies, fill = w.post, w.tags, w.line, w.issue, w.caller, w.copies, w.fill
    match, dropping, victim, evicting, errors = w.match, w.dropping, w.victim, w.evicting, w.errors
    asked_qpn, some, reserved = w.asked_qpn, w.some, w.reserved
    needed, was_free = Signal(QPS), Signal()
    m.d.sync += was_free.eq(fill.free)
    for q in range(QPS):
        demanded = dut.i_demand.valid & dut.i_demand.ready & (dut.i_demand.payload == q)
        ends = ((evicting & (copies[fill.release_index].qpn == q)) | (dropping & (victim.qpn == q))
                | ~incarnations[q].alive | ~fill.free | ~was_free)
        linked = table.took & (table.took_qpn == q) & (table.took_nodes != 0)
        m.d.sync += [needed[q].eq(~ends & (needed[q] | linked | demanded)),
                     errors[q].eq((errors[q] | (dut.o_report.valid & (caller == q))) & ~(done & (qpn == q)))]
    requester = (some.alive & (some.left != 0) & (some.cached == 0) & (reads[asked_qpn] == 0)
              & Array(needed)[asked_qpn] & ~Array(errors)[asked_qpn] & (reserved == 0)
              & ~Cat(c.valid for c in copies).any())
    undisturbed = (dut.o_line.ready & dut.o_report.ready & dut.o_qp_error.ready & ~busy & ~line.valid & ~post
            & ~Cat(tags).any() & ~match.mark_en & (~dut.exclusive | dut.granted)
            & (~dut.o_force.valid | dut.o_force.ready))
    waited_cycles = spec.cycles(m, requester & undisturbed & ~issue, 31)
    if spec.resting:
        spec.check("no deadlock: a requester list fetches or breaks within 20 cycles", waited_cycles <= 20)
        spec.cover("a requester list waits for checks of the other one", waited_cycles == 15)
