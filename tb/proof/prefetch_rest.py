"""The states at rest of the prefetcher, in which nothing is under way: what a proof may start from, and ends in."""

from amaranth.hdl import Cat, Mux, Signal, Value

from weft.hdl import abi
from weft.hdl.adamap.block import dead
from weft.hdl.adamap.head_cache import Record, Tag
from weft.hdl.adamap.prefetch import PATIENCE
from weft.tb.proof.prefetch_world import LINKED_MAX, NODE_RSN_BITS, QPS, RSN_BITS, found, lies


def start_at_rest(spec, m, w):
    """Start in any state at rest; check that every rest is like it."""
    dut, params, lives, copies, errors = w.dut, w.params, w.lives, w.copies, w.errors
    entries = range(spec.entries)
    spec.start_anywhere(
        "dut.victim", "dut.misses", "dut.next_blocks", "dut.wake_stb", "dut.waked", "dut.work.entered",
        "dut.work.left", "table.memory", "cache.blocks", "cache.records", "cache.nexts", "cache.befores",
        "cache.fill__free_count", "cache.fill__spare", "cache.fill__spare_index", "errors",
        *[f"cache.tag{k}" for k in entries], *[f"copy{k}" for k in entries], *[f"life{q}" for q in range(QPS)])
    misses = spec.inside("dut.misses", 8)
    free_count = spec.inside("cache.fill__free_count", range(spec.entries + 1))
    tags = [spec.inside(f"cache.tag{k}", Tag) for k in entries]
    blocks = [spec.inside(f"cache.blocks[{k}]", params.block_bits) for k in entries]
    records = [spec.inside(f"cache.records[{k}]", Record) for k in entries]
    links, backs = ([spec.inside(f"cache.{name}[{k}]", entries) for k in entries] for name in ("nexts", "befores"))
    nexts = [spec.inside(f"dut.next_blocks[{q}]", params.block_bits + 1) for q in range(QPS)]
    ahead = [spec.inside(f"table.memory[{q}]", params.block_bits) for q in range(QPS)]
    work = [spec.inside(f"dut.work.{name}[{q}]", 1) for q in range(QPS) for name in ("entered", "left")]
    searching = [misses <= 4 * spec.entries + PATIENCE,
                 free_count == sum(~tag.valid & ~tag.reserved for tag in tags),
                 *(work[2 * q] == work[2 * q + 1] for q in range(QPS))]
    cached, chained, linked, lying, ended, counted, going_on = [], [], [], [], [], [], []
    for k, (tag, copy, block, record) in enumerate(zip(tags, copies, blocks, records, strict=True)):
        v, before = lives[copy.qpn], Signal(spec.entries, name=f"before{k}")
        twin = Signal(spec.entries, name=f"twin{k}")
        for other, c in enumerate(copies):
            own = c.valid & (c.qpn == copy.qpn) & (other != k)
            m.d.comb += [before[other].eq(own & ((c.rsn + c.count)[:RSN_BITS] == copy.rsn)),
                         twin[other].eq(own & (c.rsn == copy.rsn))]
        head = copy.rsn == v.rsn
        cached += [~copy.reserved, ~tag.reserved, tag.valid == copy.valid, ~copy.valid | (
            v.alive & (tag.qpn == copy.qpn) & (tag.rsn == copy.rsn) & (tag.count == copy.count)
            & (tag.generation == v.generation) & (copy.count != 0)
            & (copy.rsn < 1 << NODE_RSN_BITS) & (block == copy.block)
            & (record.qpn == copy.qpn) & (record.rsn == copy.rsn) & (record.count == copy.count)
            & (record.end == copy.rsn + copy.count) & (record.generation == v.generation)),
            tag.head == (copy.valid & head)]
        behind = {j: c.valid & (c.qpn == copy.qpn) & (c.rsn == (copy.rsn + copy.count)[:RSN_BITS])
                  for j, c in enumerate(copies) if j != k}
        linked += [~copy.valid | (tag.linked == Cat(behind.values()).any()),
                   *(~copy.valid | ~follows | ((links[k] == j) & (backs[j] == k)) for j, follows in behind.items())]
        chained.append(~copy.valid | ((head | before.any()) & ~twin.any()))
        lying.append(~copy.valid | copy.lies)
        spec.assume_first(~copy.valid | lies(params, dut, copy.block, copy.line))
    for q, v in enumerate(lives):
        following = Signal(params.block_bits, name=f"following{q}")
        m.d.comb += following.eq(~nexts[q][:params.block_bits])
        ended += [~v.flush, v.state == Mux(v.alive, abi.QpState.RTS.value, abi.QpState.RESET.value),
                  v.alive | ((following == dead(params)) & ~errors[q])]
        counted.append(v.left + v.cached <= LINKED_MAX)
        spec.assume_first(~v.alive | (sum(c.valid & (c.qpn == q) for c in copies) == v.cached))
        spec.assume_first(~v.alive | (ahead[q] == v.left))
        going_on.append(~v.alive | (following == Mux(errors[q], dead(params), v.block)))
        its = found(m, params, dut, v.line, f"found{q}")      # one of several where extents overlap
        lying.append(~v.alive | v.lies)
        spec.assume_first(~v.alive | (v.block == its) | lies(params, dut, v.block, v.line))
    for name, sane in (
        ("the search and the work list are as this proof starts", searching),
        ("the cache holds what landed, nothing else", cached),
        ("the nodes of a list follow each other from its head", chained),
        ("each node of a list knows the next one and the one before", linked),
        ("every block lies where its node was read, or will be", lying),
        ("a dead QP has no list", ended),
        ("no list is longer than it was linked", counted),
        ("a list goes on where its last node says, or is broken", going_on),
    ):
        spec.assume_first(Cat(Value.cast(s).any() for s in sane).all())
        spec.check(f"at rest, {name}", ~w.resting | Cat(Value.cast(s).any() for s in sane).all(),
                   bound=spec.depth, seconds=900)
