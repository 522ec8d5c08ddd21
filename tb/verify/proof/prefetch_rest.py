"""States at rest of the prefetcher, without outstanding reads: a proof starts from any of them and returns to them."""

from amaranth.hdl import Cat, Mux, Signal, Value

from weft.hdl.adamap.cache.cached import cached_record, null_block, stray
from weft.hdl.adamap.prefetch.fetches import LINES, VERDICT, fetch_layout
from weft.hdl.contract import abi
from weft.hdl.contract.params import EVICT_LIMIT
from weft.hdl.part.layouts import NODE
from weft.tb.verify.proof import prefetch_environment as env
from weft.tb.verify.proof.prefetch_checks import PLACES


def kept(spec, m, w):
    """Return the invariants of the reads that are kept: their lists, lines and contents."""
    dut, params, incarnations = w.dut, w.params, w.incarnations
    valid, keeps, loosely = (spec.inside(f"dut.fetches.{name}", spec.entries) for name in ("valid", "keeps", "loosely"))
    fetches = [spec.inside(f"dut.fetches.fetches[{k}]", fetch_layout(params)) for k in range(spec.entries)]
    of_lists, counted, places, lying, brought, ends = [], [], [], [], [], []
    for k, fetch in enumerate(fetches):
        v = incarnations[fetch.qpn]
        of_lists += [
            valid[k] == keeps[k],
            ~valid[k] | (spec.inside(f"dut.fetches.qpn{k}", params.qpn_width) == fetch.qpn), ~loosely[k] | keeps[k],
            ~keeps[k] | (v.alive & ~w.errors.bit_select(fetch.qpn, 1) & (fetch.generation == v.generation)),
            *(~keeps[k] | ~(valid[j] & (other.qpn == fetch.qpn)) for j, other in enumerate(fetches) if j != k)]
        counted.append(~keeps[k] | (w.linked[k] & (w.owner[k] == fetch.qpn)))
        counted.append(~keeps[k] | ((fetch.lines != 0) & (fetch.lines <= spec.entries)))     # as many entries were free
        counted.append(~keeps[k] | fetch.all | w.beyond[k])
        spec.assume_first(~keeps[k] | (fetch.lines + ~fetch.all <= v.left))
        places.append(~keeps[k] | ((fetch.block == v.block) & (w.first[k] == env.where(params, dut, v))))
        lying.append(~keeps[k] | w.within[k])
        spec.assume_first(~keeps[k] | env.lies(params, dut, v.block, env.where(params, dut, v), fetch.lines))
        errors = [spec.inside(f"dut.fetches.errors[{LINES * k + part}]", 1) for part in range(spec.entries)]
        for part in range(spec.entries):
            node = spec.inside(f"dut.fetches.blocks[{LINES * k + part}]", NODE)
            brought.append(~keeps[k] | (part >= fetch.lines) | answers(node, (w.first[k] + part)[:7]))
            brought.append(~keeps[k] | (part >= fetch.lines) | (
                spec.inside(f"dut.fetches.pointers[{LINES * k + part}]", params.block_bits)
                == env.found(m, params, dut, node.next_line, f"pointed{LINES * k + part}")))
            verdict = spec.inside(f"dut.fetches.verdicts[{LINES * k + part}]", VERDICT)
            brought.append(~keeps[k] | (part >= fetch.lines) | (
                (verdict.bad == ~is_node_of(node, fetch)) & (verdict.ends == (node.next_line == 0))))
            ends.append(~keeps[k] | (part >= fetch.lines) | (node.next_line != 0) | errors[part]
                        | ((part + 1 == fetch.lines) & fetch.all) | w.cut.bit_select(fetch.qpn, 1))
    return of_lists, counted, places, lying, brought, ends


def is_node_of(node, fetch):
    """Return whether a block can be a node of the list for which it was read."""
    legal = Cat((node.encoding == encoding.value) & (node.count <= most) for encoding, most in abi.HOLES_MAX.items())
    return ((node.check == 0) & (node.next_check == 0) & (node.count != 0) & legal.any()
            & (node.qpn == fetch.qpn) & (node.generation == fetch.generation))


def answers(node, line):
    """Return whether the host may answer a read of this line with a block."""
    somewhere = (node.next_line - env.FIRST_LINE < 1 << env.LINE_BITS) & (node.next_line >= env.FIRST_LINE)
    return ((node.base_psn == line) & (somewhere | (node.next_line == 0)) & (node.next_check < 2)
            & (node.qpn < env.QPS) & (node.generation < 4) & (node.encoding < 4) & (node.check < 2)
            & (node.count < 1 << env.COUNT_BITS) & (node.rsn < 1 << env.NODE_RSN_BITS))


def start_at_rest(spec, m, w):
    """Start in any state at rest, and check that every later state at rest satisfies the same invariants."""
    dut, params, incarnations, copies, errors = w.dut, w.params, w.incarnations, w.copies, w.errors
    entries = range(spec.entries)
    spec.start_anywhere(
        "dut.evict.victim_q", "dut.evict.misses.count", "dut.work.entered", "dut.work.left",
        *[f"dut.work.queue.queue.{name}" for name in ("storage", "level", "produce", "consume")],
        *[f"dut.fetches.{name}" for name in ("valid", "keeps", "loosely", "whole", "fetches", "errors", "blocks",
                                                "pointers", "verdicts")],
        *[f"dut.fetches.qpn{k}" for k in entries],
        *[f"table.{name}" for name in ("counts", "places")],
        *[f"cache.chains.{name}" for name in ("blocks", "records", "nexts", "befores", "promoted_index")],
        *[f"cache.chains.entry_state.{name}" for name in ("valid", "head", "linked", "reserved", "second", "promoted")],
        *[f"cache.chains.fill__{name}" for name in ("free", "free_index", "free_count", "candidate",
                                                    "candidate_index")],
        "cache.chains.fill__free_count_of_0", "errors",
        *[f"cache.tags.tag{k}" for k in entries],
        *[f"{name}{k}" for name in ("copy", "first", "within", "linked", "beyond", "owner") for k in entries],
        "cut", *[f"life{q}" for q in range(env.QPS)])
    misses = spec.inside("dut.evict.misses.count", 8)
    free_count, counting = (spec.inside(f"cache.{name}", range(spec.entries + 1))
                            for name in ("fill__free_count", "chains.fill__free_count_of_0"))
    free, free_index = spec.inside("cache.fill__free", 1), spec.inside("cache.fill__free_index", entries)
    tags, valid, first, blocks = w.kept_tags, w.kept_valid, w.kept_heads, w.kept_blocks
    goes_on, reserved, second, promoted = (
        spec.inside(f"cache.chains.entry_state.{name}", spec.entries)
        for name in ("linked", "reserved", "second", "promoted"))
    promoted_index = spec.inside("cache.chains.promoted_index", entries)
    records = [spec.inside(f"cache.chains.records[{k}]", cached_record(params)) for k in entries]
    links, backs = ([spec.inside(f"cache.chains.{name}[{k}]", entries) for k in entries]
                    for name in ("nexts", "befores"))
    entered, left = ([spec.inside(f"dut.work.{name}[{q}]", 1) for q in range(env.QPS)]
                     for name in ("entered", "left"))
    produce = spec.inside("dut.work.queue.queue.produce", range(PLACES))
    searching = [misses <= 4 * spec.entries + EVICT_LIMIT,
                 free_count == sum(~valid & ~reserved), counting == free_count, free == (free_count != 0),
                 ~free | ~(valid | reserved).bit_select(free_index, 1),
                 ~spec.inside("dut.destroying", 1),
                 produce == (w.consume + w.level)[:len(produce)], w.level <= PLACES,
                 *((e == f) | Cat(of).any() for e, f, of in zip(entered, left, w.queued, strict=True))]
    spec.assume_first(~Cat(sum(of) > 1 for of in w.queued).any())
    cached, chained, linked, lying, ended, counted, stated, going_on = [], [], [], [], [], [], [], []
    for k, (tag, copy, block, record) in enumerate(zip(tags, copies, blocks, records, strict=True)):
        v, before = incarnations[copy.qpn], Signal(spec.entries, name=f"before{k}")
        twin = Signal(spec.entries, name=f"twin{k}")
        for other, c in enumerate(copies):
            own = c.valid & (c.qpn == copy.qpn) & (other != k)
            m.d.comb += [before[other].eq(own & ((c.rsn + c.count)[:env.RSN_BITS] == copy.rsn)),
                         twin[other].eq(own & (c.rsn == copy.rsn))]
        head = copy.rsn == v.rsn
        cached += [~copy.reserved, ~reserved[k], valid[k] == copy.valid, ~copy.valid | (
            v.alive & (tag.qpn == copy.qpn) & (tag.rsn == copy.rsn) & (tag.count == copy.count)
            & (tag.generation == v.generation) & (copy.count != 0)
            & (copy.rsn < 1 << env.NODE_RSN_BITS) & (block == copy.block)
            & (record.qpn == copy.qpn) & (record.rsn == copy.rsn) & (record.count == copy.count)
            & (record.generation == v.generation)),
            first[k] == (copy.valid & head)]
        behind = {j: c.valid & (c.qpn == copy.qpn) & (c.rsn == (copy.rsn + copy.count)[:env.RSN_BITS])
                  for j, c in enumerate(copies) if j != k}
        linked += [~copy.valid | (goes_on[k] == Cat(behind.values()).any()),
                   second[k] == (copy.valid & ~head & (before & first & ~promoted).any()),
                   ~promoted[k] | (first[k] & (promoted_index == k)),
                   *(~copy.valid | ~follows | ((links[k] == j) & (backs[j] == k)) for j, follows in behind.items())]
        chained.append(~copy.valid | ((head | before.any()) & ~twin.any()))
        lying.append(~copy.valid | copy.lies)
        spec.assume_first(~copy.valid | env.lies(params, dut, copy.block, copy.line))
    for q, v in enumerate(incarnations):
        following = Signal(params.block_bits, name=f"following{q}")
        m.d.comb += following.eq(~w.rows[q].inverse)
        ended += [~v.flush, v.state == Mux(v.alive, abi.QpState.RTS.value, abi.QpState.RESET.value),
                  v.alive | ((following == null_block(params)) & ~errors[q])]
        counted += [v.left + v.cached <= env.LINKED_MAX, ~v.alive | ~errors[q] | (v.left != 0)]
        spec.assume_first(~v.alive | (sum(c.valid & (c.qpn == q) for c in copies) == v.cached))
        spec.assume_first(~v.alive | (w.rows[q].count == v.left))
        stated.append(~v.alive | (following == Mux(errors[q], null_block(params), v.block)))
        going_on += [~v.alive | (v.block != null_block(params)),
                     ~v.alive | (v.line != 0) | v.begins | ((v.left == 0) & (v.block == stray(params)))]
        its = env.found(m, params, dut, v.line, f"found{q}")      # one of several blocks if extents overlap
        lying.append(~v.alive | v.begins | v.lies)
        spec.assume_first(~v.alive | v.begins | (v.block == its) | env.lies(params, dut, v.block, v.line))
    of_lists, lines, places, within, brought, ends = kept(spec, m, w)
    for name, sane, *given in (
        ("the search and the work list are as this proof starts", searching),
        ("the cache holds the filled nodes only", cached,
         "the cache holds each node", "each node is recorded with the number of its block",
         "the cache marks the head of each list"),
        ("the nodes of a list are contiguous from its head", chained),
        ("the nodes of a list are linked in both directions", linked),
        ("every block lies where its node was read, or will be", lying),
        ("a destroyed QP has no list", ended),
        ("no list is longer than it was linked", counted,
         "every filled node is cached or retired, once", "the count ahead is the number of linked and unfilled nodes"),
        ("the table holds the next block of a list, or its error", stated,
         "the table holds the next block of a list, or its end"),
        ("a list has a next block, or no more was linked", going_on),
        ("a kept node belongs to a list with a next block", of_lists),
        ("no more nodes are kept than were linked", lines),
        ("a kept node was read at the next block of its list", places),
        ("a kept node was read in one extent", within),
        ("a kept node is the node that was read", brought),
        ("a kept node ends its list where no more was linked, or with an error", ends),
    ):
        spec.assume_first(Cat(Value.cast(s).any() for s in sane).all())
        if sane is stated:
            sane = [(w.asked_qpn != q) | one for q, one in enumerate(stated)]
        spec.check(f"at rest, {name}", ~w.resting | Cat(Value.cast(s).any() for s in sane).all(), given=given)
