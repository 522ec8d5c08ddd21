"""Environment of the prefetcher in its proofs: driver, doorbells, hostile host memory, matcher.

Each part is a function that adds itself to a module ``m`` and returns its signals; ``w`` holds those of the parts
before.
"""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Const, Mux, Signal
from amaranth.lib import data

from weft.hdl.adamap.cache.cached import in_extent, line_of, null_block, split, stray
from weft.hdl.adamap.prefetch.list_state import list_view
from weft.hdl.adamap.window.control import ControlKind
from weft.hdl.contract import abi
from weft.hdl.part.layouts import NODE

QPS = 2
LINE_BITS, COUNT_BITS, NODE_RSN_BITS, RSN_BITS = 4, 2, 4, 5
LEFT_BITS, LINKED_MAX = 4, 14     # nodes linked and not yet in the cache; the same including those in the cache
FIRST_LINE = 0x38       # lines are numbered from here, so that some extents cross a page
IDLE, CLEAR, POSTED, LIST, ENTER = range(5)     # steps of creation and destruction of a QP


def found(m, params, dut, at, name):
    """Return the number of the block at a line, or the stray block if the line is in no extent."""
    size_log2, number = params.extent_blocks_log2, Signal(params.block_bits, name=name)
    m.d.comb += number.eq(stray(params))
    for k, (base, lines) in enumerate(zip(dut.extent_base, dut.extent_lines, strict=True)):     # the last match counts
        offset = Signal(58, name=f"{name}_offset{k}")
        block = Cat(offset[:size_log2], Const(k, params.extent_index_bits))
        m.d.comb += offset.eq(at - base)
        with m.If((at >= base) & (offset < lines)):
            m.d.comb += number.eq(Mux(block >= stray(params), stray(params), block))
    return number


def inside(params, dut, block):
    """Return whether a block number is within its extent."""
    extent, offset = split(params, block)
    return offset < in_extent(params, dut.extent_lines, extent)


def lies(params, dut, block, line, count=1):
    """Return whether ``count`` blocks from ``block`` on are within their extent, the first one at ``line``.

    Extents do not change, so that the result is computed once, when both values are stored.
    """
    extent, offset = split(params, block)
    return ((offset + count <= in_extent(params, dut.extent_lines, extent))
            & (line_of(params, dut.extent_base, block) == line))


def where(params, dut, incarnation):
    """Return the line at which a list continues."""
    return Mux(incarnation.begins, line_of(params, dut.extent_base, incarnation.block)[:7], incarnation.line)


def driver(spec, m, w):
    """Create and destroy QPs, one operation at a time.

    Creation: ahead table, prefetcher, QP table. Destruction: QP table, prefetcher, matcher. A list continues at
    ``block``, which comes from a doorbell (``begins``) or from its last node. In the second case it is the block at
    ``line``, 0 if there is none.
    """
    dut, table, params, entries = w.dut, w.table, w.params, spec.entries
    incarnation = data.StructLayout({"alive": 1, "flush": 1, "state": 3, "generation": 2, "left": LEFT_BITS,
                                     "cached": range(entries + 1), "rsn": RSN_BITS, "line": 7,
                                     "block": params.block_bits, "lies": 1, "begins": 1})
    incarnations = Array(Signal(incarnation, name=f"life{q}") for q in range(QPS))
    reads = Array(Signal(3, name=f"reads{q}") for q in range(QPS))      # outstanding lines
    op, stage, qpn = dut.i_control, Signal(range(5)), Signal(1)
    starting, target = spec.free(1, "control"), spec.free(1, "control_qpn")
    busy, flushing = stage != IDLE, Cat(v.flush for v in incarnations).any()
    own = incarnations[qpn]
    generation = Signal(2)      # of the new incarnation
    m.d.comb += [op.valid.eq(stage == LIST), op.p.qpn.eq(qpn),
                 op.p.generation.eq(Mux(own.alive, own.generation, generation)),
                 op.p.kind.eq(Mux(own.alive, ControlKind.DESTROY.value, ControlKind.CREATE.value)),
                 table.create_stb.eq(stage == POSTED), table.create_qpn.eq(qpn)]
    done = op.valid & op.ready
    with m.Switch(stage):
        with m.Case(IDLE):
            with m.If(~flushing & starting):
                m.d.sync += [qpn.eq(target), generation.eq(incarnations[target].generation + 1),
                             stage.eq(Mux(incarnations[target].alive, CLEAR, POSTED))]
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
                                 own.generation.eq(generation), stage.eq(ENTER), own.line.eq(0),
                                 own.block.eq(stray(params)), own.lies.eq(1), own.begins.eq(0)]
        with m.Case(ENTER):
            with m.If(starting):
                m.d.sync += [own.state.eq(abi.QpState.RTS.value), stage.eq(IDLE)]
    for reader in (dut.qp, table.qp):
        entry = Signal(data.StructLayout({"generation": 2, "state": 3}))
        with m.If(reader.en):
            m.d.sync += [entry.generation.eq(incarnations[reader.index].generation),
                         entry.state.eq(incarnations[reader.index].state)]
        m.d.comb += [reader.entry.generation.eq(entry.generation), reader.entry.state.eq(entry.state)]
    return SimpleNamespace(incarnations=incarnations, reads=reads, stage=stage, qpn=qpn, busy=busy, flushing=flushing,
                           done=done)


def doorbells(spec, m, w):
    """Ring doorbells of any incarnation of any QP, or of none; the first node of a doorbell may be anywhere.

    The effect of a doorbell is visible one cycle after it.
    """
    table, incarnations, params = w.table, w.incarnations, w.params
    coming, post, posted, more = spec.free(1, "post"), Signal(), Signal(2, name="posted"), Signal(2, name="post_more")
    post_generation, posting = Signal(2, name="post_generation"), Signal()
    receiver = incarnations[posted[0]]
    number, block = Signal(params.block_bits + 1, name="post_block"), Signal(params.block_bits)
    m.d.comb += [table.post_stb.eq(coming), table.post_qpn.eq(spec.free(2, "post_qpn")),
                 table.post_generation.eq(spec.free(2, "post_generation")),
                 table.post_nodes.eq(spec.free(2, "post_more")),
                 table.post_block.eq(spec.free(params.block_bits + 1, "post_block"))]
    m.d.sync += [post.eq(coming), posted.eq(table.post_qpn), post_generation.eq(table.post_generation),
                 more.eq(table.post_nodes), number.eq(table.post_block)]
    m.d.comb += [block.eq(Mux(number >= null_block(params), stray(params), number)),
                 posting.eq(post & (posted < QPS) & (receiver.generation == post_generation)
                            & (receiver.state != abi.QpState.RESET.value))]
    spec.assume(~posting | (receiver.left + receiver.cached <= LINKED_MAX - 3))
    for q, v in enumerate(incarnations):
        with m.If(posting & (posted == q) & (v.left == 0)):
            m.d.sync += [v.begins.eq(1), v.block.eq(block)]
    return SimpleNamespace(coming=coming, post=post, posted=posted, more=more, post_generation=post_generation,
                           posting=posting, receiver=receiver)


def host(spec, m, w):
    """Model the read engine and the memory: any answer, in any order."""
    dut, params, incarnations, entries = w.dut, w.params, w.incarnations, spec.entries
    tags = [Signal(3, name=f"read{k}") for k in range(entries)]      # outstanding lines
    index = Array(Signal(2, name=f"index{k}") for k in range(entries))
    first = Array(Signal(7, name=f"first{k}") for k in range(entries))
    owner = [Signal(1, name=f"owner{k}") for k in range(entries)]
    # Of a read: its blocks are at its lines, in one extent; as many nodes were linked, and none filled an entry since.
    within, linked = ([Signal(1, name=f"{name}{k}") for k in range(entries)] for name in ("within", "linked"))
    # More nodes were linked than the read requested. A pointer in its data is null although a further node was linked.
    beyond, cut = Array(Signal(1, name=f"beyond{k}") for k in range(entries)), Signal(QPS, name="cut")
    answer = spec.free(range(entries), "answer_tag")
    line = dut.i_line
    word = data.View(NODE, line.p.data)
    m.d.comb += [line.valid.eq(spec.free(1, "answer") & (Array(tags)[answer] != 0)), line.p.tag.eq(answer),
                 line.p.last.eq(Array(tags)[answer] == 1), line.p.index.eq(index[answer]),
                 line.p.error.eq(spec.free(1, "error")),
                 word.next_line.eq(Mux(spec.free(1, "null"), 0, FIRST_LINE + spec.free(LINE_BITS, "next_line"))),
                 word.next_check.eq(spec.free(1, "next_damage")),
                 word.next_adjacent.eq(spec.free(1, "next_adjacent")), word.qpn.eq(spec.free(1, "node_qpn")),
                 word.generation.eq(spec.free(2, "node_generation")), word.encoding.eq(spec.free(2, "encoding")),
                 word.count.eq(spec.free(COUNT_BITS, "count")), word.rsn.eq(spec.free(NODE_RSN_BITS, "node_rsn")),
                 word.base_psn.eq(first[answer] + index[answer]),       # identifies the line that was read
                 word.check.eq(spec.free(1, "damage"))]
    issue = dut.o_line.valid & dut.o_line.ready
    caller, at = dut.row_index, dut.o_line.p.line
    looked_at = spec.inside("dut.row.o", list_view(params))
    there = lies(params, dut, looked_at.block, at, dut.o_line.p.count)
    fill = w.cache.fill
    with m.If(line.valid & ~line.p.error & (word.next_line == 0) & (~line.p.last | beyond[answer])):
        m.d.sync += cut.bit_select(Array(owner)[answer], 1).eq(1)
    with m.If(issue):
        m.d.sync += cut.bit_select(caller, 1).eq(0)
    for k in range(entries):
        with m.If(line.valid & (answer == k)):
            m.d.sync += [tags[k].eq(tags[k] - 1), index[k].eq(index[k] + 1)]
        with m.If(fill.fill_en & (fill.fill_node.qpn == owner[k])):
            m.d.sync += linked[k].eq(0)
        with m.If(issue & (dut.o_line.p.tag == k)):
            m.d.sync += [tags[k].eq(dut.o_line.p.count), index[k].eq(0), owner[k].eq(caller),
                         first[k].eq(at), within[k].eq(there),
                         linked[k].eq(dut.o_line.p.count <= incarnations[caller].left),
                         beyond[k].eq(dut.o_line.p.count < incarnations[caller].left)]
    return SimpleNamespace(tags=tags, owner=owner, first=first, within=within, linked=linked, line=line, issue=issue,
                           caller=caller, beyond=beyond, cut=cut, word=word, looked_at=looked_at)


def matcher(spec, m, w):
    """Model the tags of the cache, as observed at its ports, and a matcher that marks, drops and flushes."""
    dut, cache, params, entries, incarnations, reads = w.dut, w.cache, w.params, spec.entries, w.incarnations, w.reads
    flushing, done, qpn, posting, posted, more = w.flushing, w.done, w.qpn, w.posting, w.posted, w.more
    tags, owner = w.tags, w.owner
    tag = data.StructLayout({"valid": 1, "reserved": 1, "qpn": 1, "rsn": RSN_BITS, "count": COUNT_BITS,
                             "line": 7, "block": params.block_bits, "lies": 1})
    copies = Array(Signal(tag, name=f"copy{k}") for k in range(entries))
    fill = cache.fill
    match = cache.match
    looked, dropping, dropped = Signal(1, name="looked_qpn"), Signal(), Signal(range(entries))
    marked = spec.free(range(entries), "mark_index")
    victim = copies[dropped]
    m.d.comb += [
        match.look_en.eq(1), match.qpn.eq(spec.free(1, "look_qpn")),
        match.generation.eq(incarnations[match.qpn[:1]].generation), dropped.eq(match.head_index),
        dropping.eq(spec.free(1, "drop") & match.head & incarnations[looked].alive & ~dut.granted),
        match.retire_head.eq(dropping),
        match.mark_en.eq(spec.free(1, "mark") & copies[marked].valid & ~dut.granted), match.mark_index.eq(marked),
        match.mark_bitmap.eq(spec.free(1, "mark_bitmap") & match.mark_en),
    ]
    m.d.sync += looked.eq(match.qpn)
    flush = spec.free(1, "flush")
    flushed = Signal(1)
    m.d.comb += [match.flush_en.eq(flush & flushing & ~dut.exclusive), match.flush_qpn.eq(flushed),
                 flushed.eq(incarnations[1].flush)]
    evicting = fill.release_en & copies[fill.release_index].valid
    filled_list, read_there = Signal(1), Signal()
    m.d.comb += [filled_list.eq(fill.fill_node.qpn),
                 read_there.eq(lies(params, dut, incarnations[filled_list].block, fill.fill_node.base_psn))]
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
                         c.line.eq(fill.fill_node.base_psn), c.block.eq(incarnations[filled_list].block),
                         c.lies.eq(read_there)]
    behind = found(m, params, dut, fill.fill_node.next_line, "behind")
    with m.If(dropping):
        m.d.sync += incarnations[victim.qpn].rsn.eq(incarnations[victim.qpn].rsn + victim.count)
    with m.If(match.flush_en):
        m.d.sync += incarnations[flushed].flush.eq(0)
    for q in range(QPS):
        up = fill.fill_en & (filled_list == q)
        down = evicting & (copies[fill.release_index].qpn == q)
        others = Cat(c.valid & (c.qpn == q) & ~(dropping & (dropped == k)) for k, c in enumerate(copies))
        with m.If(up):
            m.d.sync += [incarnations[q].line.eq(fill.fill_node.next_line),
                         incarnations[q].block.eq(behind), incarnations[q].lies.eq(1), incarnations[q].begins.eq(0)]
            with m.If(~others.any()):       # the first node of an empty list may have any RSN
                m.d.sync += incarnations[q].rsn.eq(fill.fill_node.rsn)
        with m.Elif(down):
            m.d.sync += [incarnations[q].line.eq(copies[fill.release_index].line),
                         incarnations[q].block.eq(copies[fill.release_index].block),
                         incarnations[q].lies.eq(copies[fill.release_index].lies), incarnations[q].begins.eq(0)]
        v, retires = incarnations[q], dropping & (victim.qpn == q)
        with m.If(~(done & ~v.alive & (qpn == q))):
            m.d.sync += [v.left.eq(v.left + Mux(posting & (posted == q), more, 0) + down - up),
                         v.cached.eq(v.cached + up - down - retires)]
        back = [(t != 0) & (o == q) for t, o in zip(tags, owner, strict=True)]
        m.d.comb += reads[q].eq(sum(back))
    return SimpleNamespace(copies=copies, fill=fill, match=match, dropping=dropping, victim=victim, evicting=evicting,
                           filled_list=filled_list, read_there=read_there, behind=behind)
