"""Check of the addresses of a card's writes: only its rings, frame slots, status block and the pages of valid MRs.

The guard derives the allowed addresses only from the commands that the driver gives; it shares no code with the card.
"""

import collections
from dataclasses import dataclass

from weft.driver.queue.command import PendingCommand
from weft.hdl.contract import abi

CommandOpcode = abi.CommandOpcode
STATISTICS_BYTES = -(-len(abi.COUNTERS) * 8 // abi.BLOCK_BYTES) * abi.BLOCK_BYTES   # the last block is padded
MAX_REPORTED = 10   # limit of the violations listed in the message


@dataclass(frozen=True)
class Area:
    """Physical bytes ``start`` to ``end`` that the card may write; ``label`` names their use."""

    start: int
    end: int
    label: str

    @property
    def pages(self):
        return range(self.start // abi.PAGE_4K, (self.end - 1) // abi.PAGE_4K + 1)


class DmaGuard:
    """Monitor of the DMA writes of one card, byte for byte.

    An MR that allows remote writes may be written from MR_CREATE on until the response to MR_DESTROY. Create the guard
    directly after the :class:`~weft.driver.verbs.context.Context` of the card, before any memory is registered.

    Attributes
    ----------
    writes : Counter
        Writes by label of their area: ``RESPONSE``, ``META_REPORT``, ``NIC_RX``, ``frames``, ``status block``,
        ``statistics``, ``MR <index>``.
    violations : list of str
    """

    def __init__(self, host, context):
        self._memory = host.memory
        self.writes, self.violations = collections.Counter(), []
        self._pages = collections.defaultdict(list)   # {page number: areas}
        self._areas = collections.defaultdict(list)   # {label: areas}
        self._table = {}                              # {page-table index: physical address}
        for ring in abi.CARD_TO_HOST:
            buffer = context.rings[ring].buffer
            self._allow(ring.name, buffer.physical(0), buffer.size)
        slots = context.engine.nic.rx_slots
        self._allow("frames", slots.physical(0), slots.size)
        self._allow("status block", context.engine.status.physical(0), abi.BLOCK_BYTES)
        self._command, context.commands.call = context.commands.call, self._call
        self._submitted, context.commands.submit = context.commands.submit, self._submit
        self._memory.dma_watchers.append(self._written)

    def check(self):
        """Fail if the card wrote outside the allowed areas."""
        assert not self.violations, (
            f"{len(self.violations)} DMA writes outside what was allowed: {'; '.join(self.violations[:MAX_REPORTED])}")

    # --------------------------------------------------------------------------- allowed areas

    def _allow(self, label, start, length):
        if not length:
            return
        area = Area(start, start + length, label)
        self._areas[label].append(area)
        for page in area.pages:
            self._pages[page].append(area)

    def _forbid(self, label):
        for area in self._areas.pop(label, ()):
            for page in area.pages:
                self._pages[page].remove(area)

    def _call(self, opcode, **fields):
        """Replace ``CommandQueue.call``."""
        self._asked(opcode, fields)
        try:
            return self._command(opcode, **fields)
        finally:
            self._answered(opcode, fields)

    def _submit(self, opcode, done=None, failed=None, **fields):
        """Replace ``CommandQueue.submit``. ``call`` also uses it, with the command that it waits for."""
        if done is None or isinstance(done, PendingCommand):
            self._submitted(opcode, done, failed, **fields)
            return

        def answered(response):
            self._answered(opcode, fields)
            done(response)

        self._asked(opcode, fields)
        self._submitted(opcode, answered, failed, **fields)

    def _asked(self, opcode, fields):
        if opcode is CommandOpcode.PAGE_TABLE_WRITE and "address" in fields:   # without an address the command is bad
            entries = self._memory.read(fields["address"], fields["count"] * abi.PTE_BYTES)
            for i in range(fields["count"]):
                entry = abi.PTE.unpack(entries[i * abi.PTE_BYTES:(i + 1) * abi.PTE_BYTES])
                self._table[fields["pte_index"] + i] = entry.page * abi.PAGE_4K
        elif opcode is CommandOpcode.MR_CREATE and fields.get("access", 0) & abi.AccessFlag.REMOTE_WRITE:
            self._allow_mr(**fields)
        elif opcode is CommandOpcode.STATISTICS:
            self._allow("statistics", fields["address"], STATISTICS_BYTES)

    def _answered(self, opcode, fields):
        if opcode is CommandOpcode.MR_DESTROY:
            self._forbid(f"MR {fields['mr_index']}")
        elif opcode is CommandOpcode.STATISTICS:
            self._forbid("statistics")

    def _allow_mr(self, *, mr_index, va, length, page_2m, pte_index, **_):
        page_bytes = abi.PAGE_2M if page_2m else abi.PAGE_4K
        offset, entry = va % page_bytes, pte_index
        while length:
            here = min(length, page_bytes - offset)
            self._allow(f"MR {mr_index}", self._table[entry] + offset, here)
            length, offset, entry = length - here, 0, entry + 1

    # ---------------------------------------------------------------------------------- writes

    def _written(self, address, length):
        end = address + length
        while address < end:
            # Two MRs may share a page, so the areas of one page are checked one by one.
            area = next((a for a in self._pages.get(address // abi.PAGE_4K, ()) if a.start <= address < a.end), None)
            if area is None:
                self.violations.append(f"{end - address} bytes at {address:#x}")
                return
            self.writes[area.label] += 1
            address = area.end
