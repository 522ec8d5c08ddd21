"""Tables of the card and the commands that change them."""

from dataclasses import replace

from weft.driver.device.attached import MemoryFault
from weft.hdl.contract import abi

from .qp_incarnation import QpIncarnation
from .translate import MrEntry, QpEntry

Opcode, Status = abi.CommandOpcode, abi.CommandStatus


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
        handler = getattr(self, f"_{c.opcode.name.lower()}", None) if isinstance(c.opcode, Opcode) else None
        status = handler(c, results) if handler else Status.BAD_OPCODE
        return abi.RESPONSE.pack(opcode=c.opcode, tag=c.tag, status=status or Status.OK, **results)

    def _set_network(self, c, _):
        self.card.mac, self.card.ip = c.mac, c.ip

    def _qp_create(self, c, _):
        index, generation = abi.split_qpn(c.qpn, self.card.params.qpn_width)
        if index in self.qps:
            return Status.IN_USE
        if c.qp_state not in (abi.QpState.RTR, abi.QpState.RTS):
            return Status.BAD_VALUE
        self.qps[index] = QpEntry(c.qp_state, generation, c.pd, int(c.access), c.ip, c.psn_guard)
        self.card.qps[index] = QpIncarnation(
            self.card.params.window_bits, self.card.list_type, self.card.memory, self.in_extent, qpn=index,
            generation=generation % (1 << abi.GENERATION_BITS), psn=c.psn)
        return None

    def _qp_modify(self, c, _):
        if (index := self._live(c.qpn)) is None:
            return Status.BAD_INDEX
        if c.qp_state not in (abi.QpState.RTR, abi.QpState.RTS, abi.QpState.ERR):
            return Status.BAD_VALUE
        if self.qps[index].state == abi.QpState.ERR:
            return None if c.qp_state is abi.QpState.ERR else Status.BAD_VALUE
        self.qps[index] = replace(self.qps[index], state=c.qp_state, access=int(c.access))
        return None

    def _qp_destroy(self, c, _):
        if (index := self._live(c.qpn)) is None:
            return Status.BAD_INDEX
        self.card.builder.run(index, self.card.qps[index].matcher.generation, 0, 0, False)
        del self.qps[index], self.card.qps[index]
        return None

    def _mr_create(self, c, _):
        if c.mr_index >= self.card.params.mrs:
            return Status.BAD_INDEX
        if c.mr_index in self.mrs:
            return Status.IN_USE
        if c.va + c.length > 1 << 64:
            return Status.BAD_VALUE
        self.mrs[c.mr_index] = MrEntry(c.key_tag, int(c.access), c.pd, c.va, c.length, c.pte_index, c.page_2m)
        return None

    def _mr_destroy(self, c, _):
        if c.mr_index not in self.mrs:
            return Status.BAD_INDEX
        del self.mrs[c.mr_index]
        return None

    def pages_refused(self, c):
        """Return the status with which a PAGE_TABLE_WRITE is rejected before its entries are read, or None."""
        if not 1 <= c.count <= 512 or c.address % abi.BLOCK_BYTES:
            return Status.BAD_VALUE
        if c.pte_index + c.count > self.card.params.ptes:
            return Status.BAD_INDEX
        return None

    def _page_table_write(self, c, _):
        if refused := self.pages_refused(c):
            return refused
        try:
            data = self.card.memory.read(c.address, c.count * abi.PTE_BYTES)
        except MemoryFault:
            return Status.DMA_ERROR
        status = None
        for i in range(c.count):
            entry = int.from_bytes(data[abi.PTE_BYTES * i:abi.PTE_BYTES * (i + 1)], "little")
            if abi.pte_damage(entry):
                status = Status.BAD_VALUE   # this entry is skipped, the others are written
            else:
                self.ptes[c.pte_index + i] = entry // abi.PAGE_4K * abi.PAGE_4K
        return status

    def _extent_set(self, c, _):
        if c.extent >= self.card.params.knit_extents:
            return Status.BAD_INDEX
        too_long = c.length // abi.BLOCK_BYTES > (1 << self.card.params.extent_blocks_log2) - 2
        if too_long or (c.length and not c.address):
            return Status.BAD_VALUE
        if c.length:
            self.extents[c.extent] = (c.address, c.length)
        else:
            self.extents.pop(c.extent, None)
        return None

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
        self.card.memory.write(c.address, data)
