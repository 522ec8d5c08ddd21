"""Events that the proofs of the prefetcher must cover, counted from the start of the run."""

from amaranth.hdl import Array, Mux, Signal

from weft.tb.verify.proof.prefetch_environment import QPS


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
