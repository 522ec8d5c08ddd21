"""The three ports of the head cache, one cycle at a time, beside the functional model."""

from dataclasses import dataclass

from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.adamap.cache.cached import NODE_BASE, REACH, CachedNode, Pending, cached_record
from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.model.functional.node import Node
from weft.tb.sim.stream.payload import pack, unpack
from weft.tb.test.hdl.adamap.head_cache_model import HeadCache, State


@dataclass
class Cycle:
    """Requests at the ports in one cycle.

    ``qpn``, ``generation``, ``rsn`` and ``reach`` (a dict) are looked up from the next cycle on if ``look``. ``offer``
    is the value of ``fill_node``; ``fill`` is the entry that was reserved for it, if a fill is requested and possible.
    ``mark`` is an entry and a bit; ``retire`` and ``release`` are entries, ``flush`` a QP. ``ripe``: the retirement is
    of the ripe head at the output, not of the list looked up.
    """

    qpn: int
    generation: int
    rsn: int
    offer: Node
    reach: dict
    look: bool = True
    line: int = 0
    peek: int = 0
    listed: int = 0
    read: int | None = None
    retire_read: int | None = None
    mark: tuple | None = None
    retire: int | None = None
    ripe: bool = False
    flush: int | None = None
    reserve: bool = False
    fill: int | None = None
    release: int | None = None


class HeadCachePorts:
    """Drives the ports and compares the outputs with the model.

    Attributes
    ----------
    model : HeadCache
    looked : tuple or None
        QPN, generation and RSN that are looked up, with ``reach``.
    ripe, free : int or None
        The ripe head at the output; the free entry.
    reserved : dict
        ``{entry: node}`` for which it was reserved.
    """

    def __init__(self, dut, entries):
        self.dut, self.model, self.now = dut, HeadCache(entries), 0
        self.looked = self.ripe = self.reach = None
        self.free = 0
        self.peeked = None      # valid flag of the entry peeked at in the cycle before
        self._picked, self.reserved = None, {}      # a ripe head that may be shown next
        self._promoted = None   # head since this cycle, which followed one that left
        self._late = {}         # cycle -> [(port, value)]
        self._listed = None, 0, None    # selected list, cycles since its selection, and its end in the last one
        self._read = {}         # side -> value since the last read

    async def cycle(self, c):
        """Run one cycle; return True if ``c.fill`` was executed."""
        self._drive(c)
        await ReadOnly()
        ready = bool(int(self.dut.fill__fill_ready.value))
        self._compare(c, ready)
        self._announce(c)
        fills, picked, free = c.fill is not None and ready, self._picked, self.model.free
        ends = fills and picked in self.model.nodes(c.offer.qpn) and self.model.last(picked)
        ripe = picked if c.flush is None and c.release is None and not ends else None
        self._picked = None if c.flush is not None else next(iter(self.model.ripe), None)
        qpn, stood, _ = self._listed
        self._listed = c.listed, 0 if qpn != c.listed else stood + 1, self._end(c.listed)
        if fills:
            self._listed = c.listed, -1, None
        self.peeked = c.peek if self.model.entries[c.peek].state is State.VALID else None
        self._change(c, fills)
        self.ripe = ripe if ripe in self.model.ripe else None
        self.free = free[0] if free and not c.reserve else None
        if c.look:
            self.looked, self.reach = (c.qpn, c.generation, c.rsn), c.reach
        await RisingEdge(self.dut.clk)
        # ``fill_en`` falls with the edge, before the next cycle is driven.
        self.now += 1
        return fills

    def _drive(self, c):
        dut, entries = self.dut, self.model.entries
        dut.match__look_en.value, dut.match__depth.value = c.look, DEPTH
        dut.match__qpn.value, dut.match__generation.value, dut.match__rsn.value = c.qpn, c.generation, c.rsn
        dut.match__reach.value = pack(REACH, **c.reach)
        for side, index in (("match", c.read), ("retire", c.retire_read)):
            getattr(dut, f"{side}__read_en").value = index is not None
            getattr(dut, f"{side}__read_index").value = index or 0
        dut.match__mark_en.value, dut.match__mark_bitmap.value = c.mark is not None, 0
        if c.mark is not None:
            index, bit = c.mark
            node = entries[index].node
            dut.match__mark_index.value = index
            dut.match__mark_bitmap.value = node.encoding == abi.Encoding.BITMAP
            dut.match__mark.value = pack(Pending, open=node.open & ~(1 << bit), left=node.left - 1)
        dut.match__retire_head.value = c.retire is not None and not c.ripe
        dut.match__retire_ripe.value = c.retire is not None and c.ripe
        dut.match__flush_en.value, dut.match__flush_qpn.value = c.flush is not None, c.flush or 0
        dut.fill__reserve_en.value = c.reserve
        dut.fill__fill_en.value = c.fill is not None and not self.mark_blocks(c)
        dut.fill__fill_index.value = c.fill or 0
        dut.fill__fill_node.value = int.from_bytes(c.offer.pack(), "little")
        dut.fill__fill_block.value = c.line
        dut.fill__release_en.value, dut.fill__release_index.value = c.release is not None, c.release or 0
        dut.fill__peek_index.value, dut.fill__qpn.value = c.peek, c.listed

    def mark_blocks(self, c):
        """Return True if a mark of a BITMAP takes the memory port that a fill needs."""
        return c.mark is not None and self.model.entries[c.mark[0]].node.encoding == abi.Encoding.BITMAP

    def _same(self, port, want):
        got = int(getattr(self.dut, port).value)
        assert got == want, f"cycle {self.now}: {port} is {got:#x}, expected {want:#x}"

    def _compare(self, c, ready):
        """Compare the outputs of this cycle."""
        dut, model = self.dut, self.model
        assert ready != self.mark_blocks(c)
        hit, head = (model.lookup(*self.looked), model.head(*self.looked[:2])) if self.looked else (None, None)
        self._same("match__hit", hit is not None)
        if hit is not None:
            self._same("match__index", hit.index)
            self._same("match__next", hit.next and not self.settles)
        self._same("match__head", head is not None)
        if head is not None:
            self._same("match__head_index", head)
        self._same("match__settles", self.settles)
        after, passed = self._reached(head)
        self._same("match__before_head", after)
        self._same("match__passed", passed)
        self._same("match__ripening", bool(model.ripe))
        self._same("match__ripe", self.ripe is not None)
        if self.ripe is not None:
            self._same("match__ripe_index", self.ripe)
        if c.read is not None:
            self._same_record("match__read_node", c.read)
            node, base = model.entries[c.read].node, unpack(NODE_BASE, int(dut.match__read_base.value))
            assert vars(base) == {"base_psn": node.base_psn, "encoding": node.encoding}, f"cycle {self.now}"
        if c.retire_read is not None:
            self._same_record("retire__read_node", c.retire_read)
        self._same("fill__free", self.free is not None)
        if self.free is not None:
            self._same("fill__free_index", self.free)
        self._same("fill__peek_valid", model.entries[c.peek].state is State.VALID)
        if model.entries[c.peek].state is State.VALID:
            self._same_record("fill__peek", c.peek)
            self._same("fill__peek_touched", model.entries[c.peek].node.touched)
            self._same("fill__peek_last", model.last(c.peek))
        if self._listed[0] == c.listed and self._listed[1] >= 1:
            self._same("fill__follows", self._listed[2] in (None, c.offer.rsn))
        self._same("idle", model.idle)
        for port, want in self._late.pop(self.now, ()):
            self._same(port, want)
        for side, wanted in self._read.items():
            for port, want in wanted.items():
                got = getattr(dut, f"{side}__{port}").value
                got = vars(unpack(SHAPES[port], int(got))) if port in SHAPES else int(got)
                assert got == want, f"cycle {self.now}: {side} reads {port} {got}, expected {want}"

    @property
    def settles(self):
        """Return True if the head of the list looked up is new since the last cycle, and another node follows it."""
        head = self.model.head(*self.looked[:2]) if self.looked else None
        return head is not None and head == self._promoted and not self.model.last(head)

    def _reached(self, head):
        """Return ``(the header is after the head, the head must be retired)``."""
        if head is None:
            return False, False
        node, reach = self.model.entries[head].node, self.reach
        slot, past = ((rsn - node.rsn) % (1 << 24) for rsn in (self.looked[2], reach["passed_rsn"]))
        after = slot >> 23
        if not reach["is_header"]:
            return after, reach["any_head"] or slot == 0
        return after, not after and not past >> 23 and past >= node.count

    def _end(self, qpn):
        """Return the RSN after the end of a list, or None if no node of it is cached."""
        nodes = self.model.nodes(qpn).values()
        return next((node.next_rsn for node in nodes if all(node.next_rsn != other.rsn for other in nodes)), None)

    def _same_record(self, port, index):
        node = self.model.entries[index].node
        want = {"qpn": node.qpn, "generation": node.generation, "rsn": node.rsn, "count": node.count}
        got = vars(unpack(RECORD, int(getattr(self.dut, port).value)))
        assert got == want, f"cycle {self.now}: {port} is {got}, expected {want}"

    def _announce(self, c):
        """Schedule later outputs for the requests of this cycle, from the state before its changes."""
        model, late = self.model, self._late
        looked = len(model.nodes(*self.looked[:2])) if self.looked else 0
        late.setdefault(self.now + 1, []).extend([
            ("fill__candidate", bool(model.candidate)),
            *[("fill__candidate_index", index) for index in model.candidate[:1]]])
        if (head := model.head(*self.looked[:2]) if self.looked else None) is not None:
            late.setdefault(self.now + 1, []).append(("match__head_rsn", model.entries[head].node.rsn % (1 << 24)))
        listed = len(model.nodes(c.listed))
        late.setdefault(self.now + 2, []).extend([
            ("match__full", looked >= DEPTH), ("fill__free_count", len(model.free)), ("fill__none", not listed)])
        late.setdefault(self.now + 3, []).append(("fill__cached", listed))
        peeked = model.entries[c.peek].node
        if peeked is not None:
            late[self.now + 1].append(("fill__peek_block", peeked.line))
        for side, index in (("match", c.read), ("retire", c.retire_read)):
            node = index is not None and model.entries[index].node
            if node:
                self._read[side] = {"pending": {"open": node.open, "left": node.left}}
                self._read[side] |= {"block": node.line} if side == "retire" else {
                    "node": {"encoding": node.encoding, "body": node.body}}

    def _change(self, c, fills):
        model = self.model
        self._promoted = None if c.retire is None else model.after(c.retire)
        if c.reserve:
            model.reserve(self.free)
            self.reserved[self.free] = c.offer
        if c.mark is not None:
            model.mark(*c.mark)
        if c.retire is not None:
            model.retire(c.retire)
        if c.flush is not None:
            model.flush(c.flush)
        if c.release is not None:
            model.release(c.release)
        if fills:
            model.fill(c.fill, c.offer, c.line)


DEPTH = 2       # of a full list
RECORD = cached_record(preset("test"))
SHAPES = {"pending": Pending, "node": CachedNode}
