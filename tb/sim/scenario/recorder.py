"""What a card reports, in order, without what may differ between two runs of the same: addresses and phases."""

from weft.hdl.contract import abi
from weft.hdl.contract.abi import ReportKind

SOURCES = {ReportKind.NODE: "node", ReportKind.RETIRE: "retire"}      # of the others: "event"
LEFT_OUT = {ReportKind.RETIRE: {"line"}, ReportKind.NODE: {"next_line", "next_phase", "next_adjacent", "check"}}
ALWAYS_OUT = {"phase", "va"}


class Recorder:
    """Listens to the META_REPORT ring of a host.

    Parameters
    ----------
    memory
        With ``dma_taps``.
    context : Context

    Attributes
    ----------
    sequences : dict
        ``"<qp> <source>"`` to what was reported, each a list: one sequence for each QP and each block that reports.
    """

    def __init__(self, memory, context):
        ring = context.rings[abi.Ring.META_REPORT]
        self._base, self._end = ring.buffer.physical(0), ring.buffer.physical(0) + ring.depth * abi.BLOCK_BYTES
        self.sequences = {}
        memory.dma_taps.append(self._written)

    def _written(self, address, data):
        if not self._base <= address < self._end:
            return
        for at in range(0, len(data), abi.BLOCK_BYTES):
            self._take(data[at:at + abi.BLOCK_BYTES])

    def _take(self, entry):
        kind = abi.REPORT_EVENT.unpack(entry).kind
        layout = abi.NODE if kind is ReportKind.NODE else abi.REPORT_LAYOUT[kind]
        fields = vars(layout.unpack(entry))
        out = ALWAYS_OUT | LEFT_OUT.get(kind, set())
        said = [kind.name, *(int(value) for name, value in sorted(fields.items()) if name not in out)]
        self.sequences.setdefault(f"{fields['qpn']} {SOURCES.get(kind, 'event')}", []).append(said)
