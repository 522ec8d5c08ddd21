"""Proof of the head cache alone: the nodes of a list are consecutive, so that no RSN is in two entries."""

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import data

from weft.hdl.adamap.cache.cached import cached_record, cached_tag
from weft.hdl.adamap.cache.chains import CacheChains, EntryState
from weft.hdl.adamap.cache.head_cache import HeadCache, TagArray, TagComparator
from weft.hdl.contract.params import preset
from weft.tb.verify.proof.faulty import faulty
from weft.tb.verify.proof.specification import Spec

RSN_BITS, COUNT_BITS, ENTRY_BITS = 4, 2, 2
PARAMS = preset("test").with_(cache_entries=1 << ENTRY_BITS, knit_extents=2, block_bits=9)
KNOWN = 2       # cycles after which the cache has found the end of the list at the port ``fill``


class HeadCacheSpec(Spec):
    """Two QPs and four entries; prefetcher and matcher do anything that the ports allow, in any order.

    An entry reserved for a node is filled with it if the node continues its list at that time, or released. The last
    node of a list is evicted, the first one retired, all of its nodes flushed. The checks are proven together: one
    describes how the entries hold the lists, and two describe what the cache stores of a lookup and of a list's end.
    """

    name = "head_cache"
    block = HeadCache
    entries, proof = 1 << ENTRY_BITS, {"kind": "induction", "seconds": 200}

    def specify(self, m):
        entries = self.entries
        m.submodules.dut = dut = self.block(PARAMS)
        fill, match = dut.fill, dut.match
        index = range(entries)
        m.d.comb += [
            fill.reserve_en.eq(self.free(1, "reserve") & fill.free), fill.qpn.eq(self.free(1, "spoken_of")),
            fill.fill_en.eq(self.free(1, "fill")), fill.fill_index.eq(self.free(index, "fill_index")),
            fill.fill_node.qpn.eq(fill.qpn), fill.fill_node.rsn.eq(self.free(RSN_BITS, "node_rsn")),
            fill.fill_node.count.eq(self.free(COUNT_BITS, "count")),
            fill.release_en.eq(self.free(1, "release")), fill.release_index.eq(self.free(index, "release_index")),
            fill.peek_index.eq(self.free(index, "peek_index")),
            match.retire_head.eq(self.free(1, "retire_head")), match.retire_ripe.eq(self.free(1, "retire_ripe")),
            match.mark_en.eq(self.free(1, "mark")), match.mark_index.eq(self.free(index, "mark_index")),
            match.mark.left.eq(self.free(1, "left")),
            match.flush_en.eq(self.free(1, "flush")), match.flush_qpn.eq(self.free(1, "flush_qpn")),
            match.look_en.eq(self.free(1, "look")), match.qpn.eq(self.free(1, "qpn")),
            match.rsn.eq(self.free(RSN_BITS, "rsn")),
        ]
        # Copies of the entries, from the ports, and the RSN at which each list begins.
        tag = data.StructLayout({"valid": 1, "reserved": 1, "qpn": 1, "rsn": RSN_BITS, "count": COUNT_BITS})
        copies = Array(Signal(tag, name=f"copy{k}") for k in index)
        begins = Array(Signal(RSN_BITS + 2, name=f"begin{q}") for q in range(2))
        looked = Signal(data.StructLayout({"qpn": 1, "rsn": RSN_BITS}))
        selected_list, known = Signal(), Signal(range(KNOWN + 1))
        peeked = Signal(data.StructLayout({"valid": 1, "index": ENTRY_BITS}))
        m.d.sync += [peeked.valid.eq(copies[fill.peek_index].valid), peeked.index.eq(fill.peek_index)]
        node, victim, retire, leaving = fill.fill_node, copies[fill.release_index], Signal(), Signal(index)
        retired = copies[leaving]
        m.d.comb += [retire.eq(match.retire_head | match.retire_ripe),
                     leaving.eq(Mux(match.retire_head, match.head_index, match.ripe_index))]
        for k, c in enumerate(copies):
            with m.If(fill.reserve_en & (fill.free_index == k)):
                m.d.sync += [c.reserved.eq(1), c.qpn.eq(node.qpn), c.rsn.eq(node.rsn), c.count.eq(node.count)]
            with m.If(fill.release_en & (fill.release_index == k)):
                m.d.sync += [c.reserved.eq(0), c.valid.eq(0)]
            with m.If((retire & (leaving == k)) | (match.flush_en & (c.qpn == match.flush_qpn[0]))):
                m.d.sync += c.valid.eq(0)
            with m.If(fill.fill_en & (fill.fill_index == k)):
                m.d.sync += [c.reserved.eq(0), c.valid.eq(1)]
        with m.If(retire):
            m.d.sync += begins[retired.qpn].eq(retired.rsn + retired.count)
        others = Cat(c.valid & (c.qpn == node.qpn[0]) & ~(retire & (leaving == k)) for k, c in enumerate(copies))
        with m.If(fill.fill_en & ~others.any()):
            m.d.sync += begins[node.qpn[0]].eq(node.rsn)
        with m.If(match.look_en):
            m.d.sync += [looked.qpn.eq(match.qpn), looked.rsn.eq(match.rsn)]
        m.d.sync += selected_list.eq(fill.qpn)
        with m.If(fill.fill_en | (fill.release_en & victim.valid)):
            m.d.sync += known.eq(0)
        with m.Elif(selected_list != fill.qpn[0]):
            m.d.sync += known.eq(1)
        with m.Else():
            m.d.sync += known.eq(Mux(known == KNOWN, KNOWN, known + 1))

        came = copies[fill.fill_index]
        self.assume(~fill.fill_en | (came.reserved & fill.follows & (node.count != 0)
                                     & (node.qpn == came.qpn) & (node.rsn == came.rsn) & (node.count == came.count)
                                     & (known == KNOWN) & (selected_list == fill.qpn[0])))
        self.assume(~fill.release_en | victim.reserved | (
            victim.valid & fill.peek_last & (fill.peek_index == fill.release_index)
            & peeked.valid & (peeked.index == fill.release_index)))
        self.assume((~match.retire_head | (match.head & ~match.settles)) & (~match.retire_ripe | match.ripe))
        self.assume(match.retire_head + match.retire_ripe + match.flush_en <= 1)
        self.assume((fill.fill_en + fill.release_en <= 1) & ~(match.flush_en & fill.fill_en))
        self.assume(~(fill.release_en & victim.valid & (retire | match.flush_en)))

        self.check("the entries hold the written nodes, those of a list in a chain",
                   self._chains(copies, begins, peeked))
        own = [c.valid & (c.qpn == looked.qpn) for c in copies]
        hits = [o & ((looked.rsn - c.rsn)[:RSN_BITS + 2] < c.count) for o, c in zip(own, copies, strict=True)]
        self.check("a lookup is recorded", self._looked(copies, looked))
        self.check("the end of the selected list is known", self._ends(copies, selected_list, known))
        self.check("no two entries hold the same RSN of a list", sum(hits) <= 1)
        self.check("a lookup finds the entry that holds the RSN, and no other", match.hit == Cat(hits).any())
        self.check("a list has a head if it has nodes", match.head == Cat(own).any())
        self.check("the head is the first node of its list",
                   ~match.head | (copies[match.head_index].rsn == begins[looked.qpn]))
        first = copies[match.head_index]
        self.check("the node after the head is recognized", ~match.hit | match.settles | (
            match.next == (copies[match.index].rsn == (first.rsn + first.count)[:RSN_BITS + 2])))
        self.check("a free entry is empty", ~fill.free | ~(
            copies[fill.free_index].valid | copies[fill.free_index].reserved))
        self.cover("a full cache of one list", Cat(own).all())
        self.cover("the last node of several is evicted",
                   fill.release_en & victim.valid & (sum(own) == entries) & (victim.qpn == looked.qpn))
        self.cover("a node is filled while the one before retires", fill.fill_en & match.retire_head & (
            retired.qpn == node.qpn[0]) & (sum(own) != 0))
        self.cover("a head retires two cycles after another", self._twice(m, match, looked))
        self.cover("a ripe head of another list retires", match.retire_ripe & (retired.qpn != looked.qpn))
        self.cover("a ripe head retires, and a node follows it", match.retire_ripe & Cat(
            c.valid & (c.qpn == retired.qpn) & (c.rsn == retired.rsn + retired.count) for c in copies).any())

    def _twice(self, m, match, looked):
        """Return the cover: two heads of a list leave, with one cycle between."""
        left, before = Signal(2), Signal(2)
        m.d.sync += [left.eq(Cat(match.retire_head, left[0])), before.eq(Cat(looked.qpn, before[0]))]
        return match.retire_head & left[1] & (before[1] == looked.qpn)

    def _chains(self, copies, begins, peeked):
        """Return the invariant of every entry.

        No two nodes of a list begin with the same RSN, each continues after another one, and both are linked.
        """
        parts, index = [], range(len(copies))
        tags = [self.inside(f"dut.tags.tag{k}", cached_tag(PARAMS)) for k in index]
        valid, head, linked, reserved = (self.inside(f"dut.chains.entry_state.{name}", len(copies))
                                         for name in ("valid", "head", "linked", "reserved"))
        nexts, befores = ([self.inside(f"dut.chains.{name}[{k}]", index) for k in index]
                          for name in ("nexts", "befores"))
        picked, shown = (self.inside(f"dut.chains.ripe_{name}", len(copies)) for name in ("picked", "shown"))
        after = self.inside("dut.chains.behind_ripe", data.StructLayout({"there": 1, "index": ENTRY_BITS}))
        parts += [~picked[k] | (self.inside("dut.chains.picked_index", index) == k) for k in index]
        parts += [~shown[k] | (self.inside("dut.match__ripe_index", index) == k) for k in index]
        parts += [~shown[k] | ~head[k] | ((after.there == linked[k]) & (~linked[k] | (nexts[k] == after.index)))
                  for k in index]
        back = self.inside("dut.chains.before_peeked", data.StructLayout(
            {"there": 1, "of": ENTRY_BITS, "index": ENTRY_BITS}))
        spot = peeked.index
        is_head, one_left = head.bit_select(spot, 1), ~valid.bit_select(back.index, 1)
        parts += [back.of == spot, ~back.there | peeked.valid, ~peeked.valid | ~reserved.bit_select(spot, 1),
                  ~peeked.valid | ~valid.bit_select(spot, 1) | Mux(
                      back.there, (back.index == Array(befores)[spot]) & (~is_head | one_left), is_head)]
        parts += [~self.inside("dut.chains.fill__free", 1) | ~(valid | reserved).bit_select(
            self.inside("dut.chains.fill__free_index", index), 1)]
        second, promoted = (self.inside(f"dut.chains.entry_state.{name}", len(copies)) for name in ("second",
                                                                                                    "promoted"))
        parts += [~promoted[k] | (head[k] & (self.inside("dut.chains.promoted_index", index) == k)) for k in index]
        for k, c in enumerate(copies):
            tag, record = tags[k], self.inside(f"dut.chains.records[{k}]", cached_record(PARAMS))
            first = c.rsn == begins[c.qpn]
            end = (c.rsn + c.count)[:RSN_BITS + 2]
            after_head = [head[j] & ~promoted[j] & o.valid & (o.qpn == c.qpn) & (o.rsn + o.count == c.rsn)
                          for j, o in enumerate(copies) if j != k]
            behind = {j: o.valid & (o.qpn == c.qpn) & (o.rsn == end) for j, o in enumerate(copies) if j != k}
            before = [o.valid & (o.qpn == c.qpn) & (o.rsn + o.count == c.rsn) for j, o in enumerate(copies) if j != k]
            parts += [
                valid[k] == c.valid, reserved[k] == c.reserved, ~c.valid | ~c.reserved,
                ~(c.valid | c.reserved) | ((tag.qpn == c.qpn) & (tag.rsn == c.rsn) & (tag.count == c.count)
                                           & (tag.generation == 0)),
                ~c.valid | (c.count != 0),
                head[k] == (c.valid & first), second[k] == (c.valid & ~first & Cat(after_head).any()),
                ~c.valid | ((record.qpn == c.qpn) & (record.rsn == c.rsn) & (record.count == c.count)),
                ~c.valid | first | Cat(before).any(),
                ~c.valid | ~Cat(o.valid & (o.qpn == c.qpn) & (o.rsn == c.rsn)
                                for j, o in enumerate(copies) if j != k).any(),
                ~c.valid | (linked[k] == Cat(behind.values()).any()),
                *(~c.valid | ~follows | ((nexts[k] == j) & (befores[j] == k)) for j, follows in behind.items()),
            ]
        return parts

    def _looked(self, copies, looked):
        """Return the invariant of the first stage of a lookup, for present entries and for those just written."""
        asked = self.inside("dut.tags.looked", data.StructLayout({"qpn": 24, "generation": 8, "rsn": 24}))
        predicted = [self.inside(f"dut.tags.matches__{name}", len(copies)) for name in ("own", "inside")]
        matched = [self.inside(f"dut.tags.written_match{which}", 1) for which in range(2)]
        written, parts = self.inside("dut.tags.written", len(copies)), []
        for k, c in enumerate(copies):
            own = c.qpn == looked.qpn
            right = own, own & ((looked.rsn - c.rsn)[:RSN_BITS + 2] < c.count)
            parts += [~(c.valid | c.reserved) | (Mux(written[k], late, bits[k]) == bit)
                      for late, bits, bit in zip(matched, predicted, right, strict=True)]
            parts += [~written[k] | ~c.valid]
        return [(asked.qpn == looked.qpn) & (asked.rsn == looked.rsn) & (asked.generation == 0), *parts]

    def _ends(self, copies, selected_list, known):
        """Return the invariant of the entries of the list, one cycle later, and of its end, two cycles later."""
        listed = self.inside("dut.chains.listed", len(copies))
        last, there = self.inside("dut.chains.end", range(len(copies))), self.inside("dut.chains.ended", 1)
        at_end, tail = self.inside("dut.chains.entry_state.at_end", len(copies)), copies[last]
        of_list = [c.valid & (c.qpn == selected_list) for c in copies]
        linked = self.inside("dut.chains.entry_state.linked", len(copies))
        return [
            *((known == 0) | ~c.valid | (listed[k] == of_list[k]) for k, c in enumerate(copies)),
            (known != KNOWN) | Cat(at_end[k] == (c.valid & there & (last == k)) for k, c in enumerate(copies)).all(),
            (known != KNOWN) | Mux(there & tail.valid, (tail.qpn == selected_list) & ~Array(linked)[last],
                                   ~Cat(of_list).any()),
        ]


SPECS = [HeadCacheSpec]
FAULTY = faulty(HeadCacheSpec, [
    ("the entries hold the written nodes, those of a list in a chain",
     "one_hot(after_ripe.there, after_ripe.index, n)", "0", CacheChains),
    ("the entries hold the written nodes, those of a list in a chain",
     "(entry_state.at_end & fill.fill_en.replicate(n))", "0", CacheChains),
    ("the entries hold the written nodes, those of a list in a chain",
     "before.there & (fill.release_index == before.of)", "before.there", CacheChains),
    ("a lookup is recorded", "written_match.eq(Mux(self.look_en, coming[0][which], staying[which]))",
     "written_match.eq(staying[which])", TagArray),
    ("a lookup is recorded", "written_match.eq(Mux(self.look_en, coming[0][which], staying[which]))",
     "written_match.eq(coming[0][which])", TagArray),
    ("the end of the selected list is known", "listed & valid & ~entry_state.linked", "listed & valid",
     CacheChains),
    ("no two entries hold the same RSN of a list", "~ended | sum_equals(last.rsn, last.count, fill.fill_node.rsn)",
     "~ended | ~sum_equals(last.rsn, last.count, fill.fill_node.rsn)", CacheChains),
    ("a lookup finds the entry that holds the RSN, and no other",
     "(slot[:bits] < self.count)", "(slot[:bits] <= self.count)", TagComparator),
    ("a list has a head if it has nodes",
     "entry_state.begins.eq(~goes_on.o)", "entry_state.begins.eq(0)", CacheChains),
    ("a list has a head if it has nodes",
     "entry_state.after_head.eq(own & entry_state.second)", "entry_state.after_head.eq(0)", CacheChains),
    ("a list has a head if it has nodes", "self.at_end.eq(self.ends & stays)", "self.at_end.eq(self.ends)", EntryState),
    ("the head is the first node of its list",
     "entry_state.begins.eq(~goes_on.o)", "entry_state.begins.eq(1)", CacheChains),
    ("the node after the head is recognized",
     "(\"next_one\", inside, entry_state.second,", "(\"next_one\", inside, entry_state.head,", CacheChains),
    ("the entries hold the written nodes, those of a list in a chain",
     "entry_state.behind_head.eq(behind_head)", "entry_state.behind_head.eq(0)", CacheChains),
    ("the entries hold the written nodes, those of a list in a chain",
     "(entry_state.promoted & entry_state.linked).any()", "entry_state.promoted.any()", CacheChains),
    ("a free entry is empty", "~valid & ~entry_state.reserved", "~valid", CacheChains),
    ("a free entry is empty", "any_free.o & ~fill.reserve_en", "any_free.o", CacheChains),
])
