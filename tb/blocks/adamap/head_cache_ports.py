"""The three ports of the head cache, a cycle at a time, beside the functional model."""

from dataclasses import dataclass

from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl import abi
from weft.hdl.adamap.head_cache import CachedNode, Pending, Tag
from weft.model.functional.head_cache import HeadCache, State
from weft.model.functional.node import Node
from weft.tb.flow.payload import pack, unpack


@dataclass
class Cycle:
    """What the ports ask for in one cycle.

    ``offer`` stands at ``fill_node``; ``fill`` is the entry it goes to, if it is to be filled in and can be.
    ``mark`` is an entry and a bit; ``retire`` and ``release`` are entries, ``flush`` a QP.
    """

    qpn: int
    generation: int
    rsn: int
    offer: Node
    line: int = 0
    peek: int = 0
    cached_qpn: int = 0
    read: int | None = None
    retire_read: int | None = None
    mark: tuple | None = None
    retire: int | None = None
    flush: int | None = None
    reserve: bool = False
    fill: int | None = None
    release: int | None = None


class HeadCachePorts:
    """Drives the ports and compares what they show with the model.

    Attributes
    ----------
    model : HeadCache
    """

    def __init__(self, dut, entries):
        self.dut, self.model, self.now = dut, HeadCache(entries), 0
        self._late = {}         # cycle -> [(port, value)]
        self._read = {}         # side -> what it shows since the last read

    async def cycle(self, c):
        """One cycle; returns whether ``c.fill`` came to pass."""
        self._drive(c)
        await ReadOnly()
        ready = bool(int(self.dut.fill__fill_ready.value))
        self._compare(c, ready)
        self._announce(c)
        self._change(c, ready)
        await RisingEdge(self.dut.clk)
        # ``fill_en`` falls with the edge, before the next cycle is driven.
        self.now += 1
        return ready and c.fill is not None

    def _drive(self, c):
        dut, entries = self.dut, self.model.entries
        dut.match__qpn.value, dut.match__generation.value, dut.match__rsn.value = c.qpn, c.generation, c.rsn
        for side, index in (("match", c.read), ("retire", c.retire_read)):
            getattr(dut, f"{side}__read_en").value = index is not None
            getattr(dut, f"{side}__read_index").value = index or 0
        dut.match__mark_en.value = c.mark is not None
        if c.mark is not None:
            index, bit = c.mark
            node = entries[index].node
            dut.match__mark_index.value = index
            dut.match__mark_bitmap.value = node.encoding == abi.Encoding.BITMAP
            dut.match__mark.value = pack(Pending, open=node.open & ~(1 << bit), left=node.left - 1)
        dut.match__retire_en.value = c.retire is not None
        if c.retire is not None:
            node = entries[c.retire].node
            dut.match__retire_index.value = c.retire
            dut.match__retire_qpn.value, dut.match__retire_end.value = node.qpn, node.next_rsn
        dut.match__flush_en.value, dut.match__flush_qpn.value = c.flush is not None, c.flush or 0
        dut.fill__reserve_en.value = c.reserve
        dut.fill__fill_en.value = c.fill is not None and not self.mark_blocks(c)
        dut.fill__fill_index.value = c.fill or 0
        dut.fill__fill_node.value = int.from_bytes(c.offer.pack(), "little")
        dut.fill__fill_block.value = c.line
        dut.fill__release_en.value, dut.fill__release_index.value = c.release is not None, c.release or 0
        dut.fill__peek_index.value, dut.fill__cached_qpn.value = c.peek, c.cached_qpn

    def mark_blocks(self, c):
        """A mark of a BITMAP takes the memory that a fill wants."""
        return c.mark is not None and self.model.entries[c.mark[0]].node.encoding == abi.Encoding.BITMAP

    def _same(self, port, want):
        got = int(getattr(self.dut, port).value)
        assert got == want, f"cycle {self.now}: {port} is {got:#x}, expected {want:#x}"

    def _compare(self, c, ready):
        """What the ports show in this cycle."""
        dut, model = self.dut, self.model
        hit, head, ripe = model.lookup(c.qpn, c.generation, c.rsn), model.head(c.qpn, c.generation), model.ripe
        assert ready != self.mark_blocks(c)
        self._same("match__hit", hit is not None)
        if hit is not None:
            self._same("match__index", hit.index)
            self._same("match__slot", hit.slot)
            self._same("match__next", hit.next)
        self._same("match__head", head is not None)
        if head is not None:
            node = model.entries[head].node
            self._same("match__head_index", head)
            self._same("match__head_rsn", node.rsn)
            self._same("match__head_count", node.count)
        self._same("match__ripe", bool(ripe))
        if ripe:
            self._same("match__ripe_index", ripe[0])
            self._same_tag("match__ripe_tag", ripe[0])
        self._same("fill__free", bool(model.free))
        if model.free:
            self._same("fill__free_index", model.free[0])
        self._same("fill__follows", model.follows(c.offer))
        self._same_tag("fill__peek", c.peek)
        if model.entries[c.peek].state is State.VALID:
            self._same("fill__peek_last", model.last(c.peek))
        self._same("idle", model.idle)
        for port, want in self._late.pop(self.now, ()):
            self._same(port, want)
        for side, wanted in self._read.items():
            for port, want in wanted.items():
                got = getattr(dut, f"{side}__{port}").value
                got = vars(unpack(SHAPES[port], int(got))) if port in SHAPES else int(got)
                assert got == want, f"cycle {self.now}: {side} reads {port} {got}, expected {want}"

    def _same_tag(self, port, index):
        entry = self.model.entries[index]
        want = {"valid": int(entry.state is State.VALID), "reserved": int(entry.state is State.RESERVED)}
        if want["valid"]:
            node = entry.node
            want |= {"head": node.head, "touched": node.touched, "done": not node.left, "qpn": node.qpn,
                     "generation": node.generation, "rsn": node.rsn, "count": node.count}
        got = vars(unpack(Tag, int(getattr(self.dut, port).value)))
        assert {name: got[name] for name in want} == want, f"cycle {self.now}: {port} is {got}, expected {want}"

    def _announce(self, c):
        """What this cycle asked for and the ports show later: as it is now, before the changes of this cycle."""
        model, late = self.model, self._late
        late.setdefault(self.now + 1, []).extend([
            ("match__cached", len(model.nodes(c.qpn, c.generation))), ("fill__free_count", len(model.free))])
        late.setdefault(self.now + 2, []).append(("fill__cached", len(model.nodes(c.cached_qpn))))
        peeked = model.entries[c.peek].node
        if peeked is not None:
            late[self.now + 1].append(("fill__peek_block", peeked.line))
        for side, index in (("match", c.read), ("retire", c.retire_read)):
            node = index is not None and model.entries[index].node
            if node:
                self._read[side] = {"pending": {"open": node.open, "left": node.left}}
                self._read[side] |= {"block": node.line} if side == "retire" else {
                    "node": {"base_psn": node.base_psn, "encoding": node.encoding, "body": node.body}}

    def _change(self, c, ready):
        model = self.model
        if c.reserve:
            model.reserve()
        if c.mark is not None:
            model.mark(*c.mark)
        if c.retire is not None:
            model.retire(c.retire)
        if c.flush is not None:
            model.flush(c.flush)
        if c.release is not None:
            model.release(c.release)
        if c.fill is not None and ready:
            model.fill(c.fill, c.offer, c.line)


SHAPES = {"pending": Pending, "node": CachedNode}
