"""Events that the proofs of the prefetcher must cover, counted from the start of the run."""

from amaranth.hdl import Array, Mux, Signal

from weft.tb.verify.proof.prefetch_world import QPS


def events(spec, m, w):
    """Add the covers."""
    dut, lives, reads, qpn, busy, done, post = w.dut, w.lives, w.reads, w.qpn, w.busy, w.done, w.post
    posted, more, post_generation, receiver, line = w.posted, w.more, w.post_generation, w.receiver, w.line
    issue, caller, copies, fill, dropping, victim = w.issue, w.caller, w.copies, w.fill, w.dropping, w.victim
    evicting, landing, some_lines = w.evicting, w.landing, w.some_lines
    landings, since, retirements, evictions = (Array(Signal(2, name=f"{name}{q}") for q in range(QPS)) for name in (
        "landings", "landings_of_read", "retirements", "evictions"))
    for q in range(QPS):
        m.d.sync += [landings[q].eq(landings[q] + (fill.fill_en & (landing == q) & ~landings[q].all())),
                     since[q].eq(Mux(issue & (caller == q), 0, since[q] | (fill.fill_en & (landing == q)))),
                     retirements[q].eq(retirements[q] | (dropping & (victim.qpn == q))),
                     evictions[q].eq(evictions[q] | (evicting & (copies[fill.release_index].qpn == q)))]
    kept = spec.once(m, spec.inside("dut.fetches.keep_en", 1))
    # `ended`: the last fill of the list was a node without a successor. `refused`: a node without a successor was read
    # and has not filled an entry since.
    ended, refused = (Array(Signal(name=f"{name}{q}") for q in range(QPS)) for name in ("ended", "refused"))
    landed_at, null = Signal(7), line.valid & ~line.p.error & line.p.last & (w.word.next_line == 0)
    with m.If(fill.fill_en):
        m.d.sync += landed_at.eq(fill.fill_node.base_psn)
    for q in range(QPS):
        lands, back = fill.fill_en & (landing == q), evicting & (copies[fill.release_index].qpn == q)
        with m.If(lands | back | ~lives[q].alive):
            m.d.sync += ended[q].eq(lands & (fill.fill_node.next_line == 0))
        with m.If(lands | back | ~lives[q].alive | kept):
            m.d.sync += refused[q].eq(0)
        with m.Elif(null & (Array(w.owner)[line.p.tag] == q)):
            m.d.sync += refused[q].eq(1)
    broke, dying = spec.once(m, dut.o_report.valid), spec.cycles(m, busy & lives[qpn].alive & (reads[qpn] != 0), 15)
    spec.cover("a node lands", fill.fill_en)
    spec.cover("a bad node breaks its list", dut.o_report.valid)
    spec.cover("a doorbell of a former life", post & (posted < QPS) & receiver.alive & (more != 0)
               & ((post_generation + 1)[:2] == receiver.generation))
    if spec.resting:
        spec.cover("a list ends and begins again elsewhere",
                   issue & ended[caller] & lives[caller].begins & (landed_at + 1 != dut.o_line.p.line))
        spec.cover("a last node is read again since its list grew", issue & refused[caller])
        spec.cover("a second node of a list lands", fill.fill_en & (landings[landing] == 1))
        spec.cover("a node that came finds no entry and is kept", kept)
        spec.cover("a node that was kept lands", fill.fill_en & spec.inside("dut.fetches.kept", 1))
        spec.cover("one read for several nodes", issue & (some_lines > 1))
        spec.cover("several nodes of one read land", fill.fill_en & since[landing].any())
        spec.cover("a destroy waits for a fetch", (dying == 8) & line.valid & line.p.last)
        spec.cover("a life ends and the next one begins", done & ~lives[qpn].alive & (dying == 0))
        spec.cover("an untouched node is turned out", evicting)
        spec.cover("a node that was turned out is fetched again",
                   issue & evictions[caller].any() & (landings[caller] == 0))
        spec.cover("a head is asked to go early", dut.o_force.valid)
        spec.cover("a node retires and its list fetches again", issue & retirements[caller].any())
        spec.cover("rest again after a node landed", w.resting & landings[w.asked_qpn].any())
        spec.cover("rest again after a node was turned out", w.resting & evictions[w.asked_qpn].any())
        spec.cover("rest again after a list broke", w.resting & broke)
