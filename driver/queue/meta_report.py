"""Meta Reports: taken from the ring, decoded, handed to the QP they speak of."""

import collections

from weft.hdl import abi


class ReportWorker:
    """The META_REPORT ring.

    Parameters
    ----------
    ring : CardToHostRing
    find_qp : callable(qpn, generation)
        The QP that takes reports (it has ``on_report(kind, report)``), or None.

    Attributes
    ----------
    counts : Counter
        Reports by kind name, and ``stale`` for those of QPs that are gone.
    """

    def __init__(self, ring, find_qp):
        self.ring, self.find_qp = ring, find_qp
        self.counts = collections.Counter()

    def progress(self):
        """Take everything that is there; true if something was."""
        busy = False
        while entries := self.ring.poll():
            busy = True
            for entry in entries:
                self._dispatch(entry)
            self.ring.release()
        return busy

    def _dispatch(self, entry):
        kind = abi.REPORT_EVENT.unpack(entry).kind
        if not isinstance(kind, abi.ReportKind):
            self.counts["unknown"] += 1
            return
        report = (abi.NODE if kind is abi.ReportKind.NODE else abi.REPORT_LAYOUT[kind]).unpack(entry)
        self.counts[kind.name] += 1
        qp = self.find_qp(report.qpn, report.generation)
        if qp is None:
            self.counts["stale"] += 1
        else:
            if kind is not abi.ReportKind.NODE:
                report.kind = kind
            qp.on_report(kind, report)
