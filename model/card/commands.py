"""Command processor of the timing model: one command at a time, with the duration of the gateware."""

from weft.hdl.contract import abi

from ..functional.command_check import refusal
from .pcie import LINE_COMMAND, Read
from .timing import CYCLE_NS

Opcode, Ring = abi.CommandOpcode, abi.Ring
READS_MAX = 4           # outstanding reads of page-table entries; see hdl/command/page_writer.py
READ_BYTES = 4 * abi.BLOCK_BYTES
QP_COMMANDS = {Opcode.QP_CREATE, Opcode.QP_MODIFY, Opcode.QP_DESTROY, Opcode.QP_QUERY}


class Commands:
    """Executes the commands of a card from one reset to the next.

    Parameters
    ----------
    card : TimedCard
    """

    def __init__(self, card):
        self._card, self._busy = card, False

    def go_on(self):
        """Start the next command, if there is one and the response ring has space."""
        rings, timing = self._card.rings, self._card.timing
        if self._busy or rings.peek(Ring.COMMAND) is None or not rings.space(Ring.RESPONSE):
            return
        self._busy = True
        command = abi.COMMAND.unpack(rings.take(Ring.COMMAND))
        if command.opcode is Opcode.PAGE_TABLE_WRITE and refusal(command, self._card.params) is None:
            self._card.loop.call_in(timing.pages, _Pages(self._card, command, self._carry_out).ask)
        else:
            lag = timing.qp_command if command.opcode in QP_COMMANDS else timing.command
            self._card.loop.call_in(lag, self._carry_out, command)

    def _carry_out(self, command):
        card = self._card
        if card.commands is not self:
            return      # after a reset of the card
        self._busy = False
        before = dict(card.qps)
        card.rings.put(Ring.RESPONSE, card.tables.command(command))
        for index, incarnation in before.items():
            if card.qps.get(index) is not incarnation:
                card.second_level.forget(incarnation)
        card.loop.call_in(card.timing.command_done, self._finish)
        self.go_on()

    def _finish(self):
        if self._card.commands is self:
            self._card.rings.finish(Ring.COMMAND)


class _Pages:
    """Transfer of page-table entries from host memory: reads up to the next multiple of 256 bytes, then one write per
    cycle to the table. After the last entry it calls ``done(command)``."""

    def __init__(self, card, command, done):
        self._card, self._command, self._done = card, command, done
        self._at, self._left = command.address, command.count * abi.PTE_BYTES
        self._reads, self._free_at = 0, 0.0

    def ask(self):
        """Request entries, up to the limit of outstanding reads."""
        loop, number = self._card.loop, 0
        while self._left and self._reads < READS_MAX:
            length = min(self._left, READ_BYTES - self._at % READ_BYTES)
            read = Read(self._at, -(-length // abi.BLOCK_BYTES) * abi.BLOCK_BYTES,
                        lambda done, count=length // abi.PTE_BYTES: self._came(done, count))
            self._card.line_read(loop.now_ns + 2 * number * CYCLE_NS, LINE_COMMAND, read)
            self._at, self._left = self._at + length, self._left - length
            self._reads, number = self._reads + 1, number + 1

    def _came(self, done, count):
        self._free_at = max(self._free_at, done) + count * CYCLE_NS
        self._card.loop.call_at(self._free_at, self._written)

    def _written(self):
        self._reads -= 1
        if self._left:
            self.ask()
        elif not self._reads:
            self._card.loop.call_in(self._card.timing.pages_written, self._done, self._command)
