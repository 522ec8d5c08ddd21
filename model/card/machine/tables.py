"""The tables of a compiled card: what its pipelines have to know of QPs, MRs and pages."""

import numpy as np

from weft.hdl.contract import abi

from ...functional.tables import Tables
from ...functional.translate import NO_QP
from ...functional.window import Window
from .cells import Cells
from .state import QP

_PLAIN, _BASE = QP.names.index("plain"), QP.names.index("psn")


class CompiledWindow(Window):
    """:class:`Window` whose base the pipelines move when packets come in order and none was lost."""

    def __init__(self, bits, psn, cells):
        self.cells = cells
        super().__init__(bits, psn)
        cells.numbers[_PLAIN] = 1

    @property
    def base(self):
        return self.cells.numbers[_BASE]

    @base.setter
    def base(self, psn):
        self.cells.numbers[_BASE] = psn

    def judge(self, psn, **options):
        judged = super().judge(psn, **options)
        self.cells.numbers[_PLAIN] = not (self.received or self.owed)
        return judged


class CompiledTables(Tables):
    """:class:`Tables` that show themselves to the pipelines."""

    def command(self, c):
        self.card.transmit_path.freeze()
        response = super().command(c)
        self._show(c)
        return response

    def set_state(self, qpn, state):
        self.card.transmit_path.freeze()
        super().set_state(qpn, state)
        self._show_qp(qpn)

    def _show(self, c):
        kind, opcodes = c.opcode, abi.CommandOpcode
        if kind in (opcodes.QP_CREATE, opcodes.QP_MODIFY, opcodes.QP_DESTROY):
            index, _ = abi.split_qpn(c.qpn, self.card.params.qpn_width)
            life = self.card.qps.get(index)
            if life and not isinstance(life.window, CompiledWindow):
                old = life.window
                life.window = CompiledWindow(old.bits, old.base, Cells(self._records("qp"), index))
            self._show_qp(index)
        elif kind in (opcodes.MR_CREATE, opcodes.MR_DESTROY):
            self._show_mr(c.mr_index)
        elif kind is opcodes.PAGE_TABLE_WRITE:
            self.show_pages(range(c.pte_index, min(c.pte_index + c.count, self.card.params.ptes)))
        elif kind is opcodes.SET_NETWORK:
            record = self._records("card")
            record.mac, record.ip = self.card.mac, self.card.ip

    def _records(self, name):
        return getattr(self.card.machine.w, name)[self.card.number]

    def bind(self):
        """The arrays are others."""
        for index, life in self.card.qps.items():
            life.window.cells = Cells(self._records("qp"), index)

    def _show_qp(self, index):
        entry, record = self.qps.get(index, NO_QP), self._records("qp")[index]
        record.state, record.generation, record.pd = int(entry.state), entry.generation, entry.pd
        record.access, record.ip = entry.access, entry.peer_ip

    def _show_mr(self, index):
        entry = self.mrs.get(index)
        if index >= self.card.params.mrs:
            return
        record = self._records("mr")[index]
        # windows, large pages and the upper half of all addresses are Python's
        record.small = bool(entry and entry.valid and not entry.window and not entry.page_2m
                            and entry.va + entry.length < 1 << 62)
        if record.small:
            record.tag, record.access, record.pd = entry.key_tag, entry.access, entry.pd
            record.va, record.length, record.pte = entry.va, entry.length, entry.pte_index

    def show_pages(self, indices):
        """Where the pages of page-table entries are in this process; 0 where nothing is."""
        pages, addresses = self.card.memory.watched.pages(), self._records("page")
        for index in indices:
            page = pages.get(self.ptes.get(index, -1) // abi.PAGE_4K)
            addresses[index] = 0 if page is None else np.frombuffer(page, np.uint8).ctypes.data

    def forget_pages(self, frames):
        """Pages of the host go."""
        self.card.transmit_path.freeze()
        frames, addresses = set(frames), self._records("page")
        for index, address in self.ptes.items():
            if address // abi.PAGE_4K in frames:
                addresses[index] = 0
