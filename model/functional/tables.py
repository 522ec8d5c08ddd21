"""Tables of the card and the commands that change them."""

from dataclasses import replace

from weft.driver.device.attached import MemoryFault
from weft.hdl.contract import abi

from .command_check import refusal
from .qp_incarnation import QpIncarnation
from .translate import MrEntry, QpEntry

Status = abi.CommandStatus


class ZeroTable(dict):
    """Page table in which entries that were never written are 0, as in the gateware."""

    def __missing__(self, index):
        return 0


class Tables:
    """Table state of a functional card: QPs, MRs, page-table entries and knitting extents."""

    def __init__(self, card):
        self.card = card
        self.qps, self.mrs, self.extents = {}, {}, {}
        self.ptes = {} if card.checks_driver else ZeroTable()      # an entry that the driver forgot is a KeyError

    def in_extent(self, line):
        at = line * abi.BLOCK_BYTES
        return any(base <= at < base + length for base, length in self.extents.values())

    def line(self, block):
        """Return the address of a block by its number in LINK_DOORBELL, divided by 64; None outside all extents."""
        index, offset = divmod(block, 1 << self.card.params.extent_blocks_log2)
        base, length = self.extents.get(index, (0, 0))
        return base // abi.BLOCK_BYTES + offset if offset * abi.BLOCK_BYTES < length else None

    def set_state(self, qpn, state):
        self.qps[qpn] = replace(self.qps[qpn], state=state)

    def _live(self, qpn):
        """Return the index of a QPN with the current generation, or None."""
        index, generation = abi.split_qpn(qpn, self.card.params.qpn_width)
        return index if index in self.qps and self.qps[index].generation == generation else None

    def command(self, c):
        """Execute an unpacked COMMAND; return the packed RESPONSE."""
        results = {}
        status = refusal(c, self.card.params) or getattr(self, f"_{c.opcode.name.lower()}")(c, results)
        return abi.RESPONSE.pack(opcode=c.opcode, tag=c.tag, status=status or Status.OK, **results)

    def _set_network(self, c, _):
        self.card.mac, self.card.ip = c.mac, c.ip

    def _qp_create(self, c, _):
        index, generation = abi.split_qpn(c.qpn, self.card.params.qpn_width)
        if index in self.qps:
            return Status.IN_USE
        self.qps[index] = QpEntry(abi.QpState.RTS, generation, c.pd, int(c.access), c.ip, c.psn_guard)
        self.card.qps[index] = QpIncarnation(
            self.card.params.window_bits, self.card.list_type, self.card.memory, self.in_extent, qpn=index,
            generation=generation % (1 << abi.GENERATION_BITS), psn=c.psn)
        if self.card.pacer is not None:
            self.card.pacer.create(index)
        return None

    def _stop_pacing(self, index):
        """Discard the paced descriptors of a QP that no longer sends."""
        if self.card.pacer is not None:
            self.card.pacer.flush(index)

    def _qp_modify(self, c, _):
        if (index := self._live(c.qpn)) is None:
            return Status.BAD_INDEX
        if c.qp_state is not abi.QpState.RTS:
            self._stop_pacing(index)
        if self.qps[index].state == abi.QpState.ERR:
            return None if c.qp_state is abi.QpState.ERR else Status.BAD_VALUE
        self.qps[index] = replace(self.qps[index], state=c.qp_state, access=int(c.access))
        return None

    def _qp_destroy(self, c, _):
        if (index := self._live(c.qpn)) is None:
            return Status.BAD_INDEX
        self.card.builder.run(index, self.card.qps[index].matcher.generation, 0, 0, False)
        self._stop_pacing(index)
        del self.qps[index], self.card.qps[index]
        return None

    def _mr_create(self, c, _):
        if c.mr_index in self.mrs:
            return Status.IN_USE
        self.mrs[c.mr_index] = MrEntry(c.key_tag, int(c.access), c.pd, c.va, c.length, c.pte_index, c.page_2m)
        return None

    def _mr_destroy(self, c, _):
        if c.mr_index not in self.mrs:
            return Status.BAD_INDEX
        del self.mrs[c.mr_index]
        return None

    def _read(self, address, length):
        """Return host memory, or None if it cannot be read."""
        try:
            return self.card.memory.read(address, length)
        except MemoryFault:
            return None

    def _page_table_write(self, c, _):
        size = c.count * abi.PTE_BYTES
        if (data := self._read(c.address, size)) is not None:
            return self._write_pages(c.pte_index, data)
        for at in range(0, size, abi.BLOCK_BYTES):      # the gateware uses each line that comes
            if (line := self._read(c.address + at, min(abi.BLOCK_BYTES, size - at))) is not None:
                self._write_pages(c.pte_index + at // abi.PTE_BYTES, line)
        return Status.DMA_ERROR

    def _write_pages(self, index, data):
        """Write entries from ``index`` on; return BAD_VALUE if one is damaged, which is skipped, or None."""
        status = None
        for at in range(0, len(data), abi.PTE_BYTES):
            entry = int.from_bytes(data[at:at + abi.PTE_BYTES], "little")
            if abi.pte_damage(entry):
                status = Status.BAD_VALUE
            else:
                self.ptes[index + at // abi.PTE_BYTES] = entry // abi.PAGE_4K * abi.PAGE_4K
        return status

    def _extent_set(self, c, _):
        if c.length:
            self.extents[c.extent] = (c.address, c.length)
        else:
            self.extents.pop(c.extent, None)

    def _qp_query(self, c, results):
        if (index := self._live(c.qpn)) is None:
            return Status.BAD_INDEX
        incarnation = self.card.qps[index]
        results |= {"result0": incarnation.window.base % (1 << 32),
                    "result1": incarnation.window.holes % (1 << abi.HOLES_BITS),
                    "result2": incarnation.matcher.linked - incarnation.matcher.fetched,
                    "result3": len(incarnation.matcher.nodes)}
        return None

    def _statistics(self, c, _):
        data = b"".join(self.card.counters[name].to_bytes(8, "little") for name, _ in abi.COUNTERS)
        self.card.memory.write(c.address, data + bytes(-len(data) % abi.BLOCK_BYTES))
