"""Meta Reports: read from the ring, decoded, and dispatched to their QPs."""

import collections

from weft.hdl.contract import abi

from .arrival import GENERATION_SHIFT, QPN_MASK, arrival

_KIND_AT, _REASON_AT = (abi.REPORT_EVENT.offsets[name] for name in ("kind", "reason"))
_KIND_MASK = (1 << abi.REPORT_EVENT.by_name["kind"].width) - 1
_DECODERS = {kind: layout.unpack for kind, layout in abi.REPORT_LAYOUT.items()} | {
    abi.ReportKind.NODE: abi.NODE.unpack, abi.ReportKind.MESSAGE_END: arrival, abi.ReportKind.PROGRESS: arrival}
_KINDS = {int(kind): (kind, kind.name, decode) for kind, decode in _DECODERS.items()}
_KIND_BITS = _KIND_MASK << _KIND_AT      # of the first byte
_REPEATED = frozenset({abi.ReportKind.ERROR, abi.ReportKind.MARKED})
_ARRIVED = frozenset({abi.ReportKind.MESSAGE_END << _KIND_AT, abi.ReportKind.PROGRESS << _KIND_AT})


def _kind(entry):
    """Return the kind of an entry as a plain number."""
    return entry[0] >> _KIND_AT & _KIND_MASK


def _reports_drop(entry):
    """Return true if an entry reports a dropped packet."""
    kind = _kind(entry)
    return kind == abi.ReportKind.ERROR or (kind == abi.ReportKind.PROBE and entry[_REASON_AT // 8])


class ReportWorker:
    """Reader of the META_REPORT ring.

    Parameters
    ----------
    ring : CardToHostRing
    find_qp : callable(qpn, generation)
        Returns the QP for the report, with ``on_report(kind, report)``, or None.

    Attributes
    ----------
    counts : Counter
        Reports by kind name; ``unknown`` kinds; ``stale`` for those of destroyed QPs; ``failed`` for those that raised;
        ``errors_dropped`` for ERROR and MARKED reports that :meth:`collect` had no space for.
    collected : deque of bytes
        Entries that were taken from the ring and not dispatched.
    """

    ROUND_MAX = 4096       # reports dispatched in one call of :meth:`progress`
    COLLECTED_MAX = 1 << 16

    def __init__(self, ring, find_qp):
        self.ring, self.find_qp = ring, find_qp
        self.counts = collections.Counter()
        self.collected = collections.deque()

    def collect(self):
        """Free the ring without dispatching its entries, which the next :meth:`progress` does.

        With ``COLLECTED_MAX`` entries or more, reports of dropped and of marked packets are dropped: a peer can cause
        any number of them.
        """
        while len(self.collected) < 2 * self.COLLECTED_MAX and self._take():
            pass

    def _take(self):
        entries = self.ring.poll()
        if not entries:
            return False
        refusals = not _ARRIVED.issuperset([entry[0] & _KIND_BITS for entry in entries]) and any(
            map(_reports_drop, entries))
        if len(self.collected) >= self.COLLECTED_MAX:
            kept = [entry for entry in entries if _kind(entry) not in _REPEATED]
            self.counts["errors_dropped"] += len(entries) - len(kept)
            entries = kept
        self.collected.extend(entries)
        self.ring.release(at_once=refusals)     # until then the card reports no further dropped packet of those QPs
        return True

    def progress(self):
        """Dispatch the available reports, oldest first. Return true if there were any.

        The first exception that a report raises is raised again after all others are dispatched.
        """
        delivered, error, collected = 0, None, self.collected
        while delivered < self.ROUND_MAX and (collected or self._take()):
            while collected and delivered < self.ROUND_MAX:
                delivered += 1
                try:
                    self._dispatch(collected.popleft())
                except Exception as raised:
                    self.counts["failed"] += 1
                    error = error or raised
        if error is not None:
            raise error
        return delivered > 0

    def forget(self):
        """Drop all collected reports: the card was reset."""
        self.collected.clear()

    def _dispatch(self, entry):
        known = _KINDS.get(entry[0] >> _KIND_AT & _KIND_MASK)
        if known is None:
            self.counts["unknown"] += 1
            return
        kind, name, decode = known
        report = decode(entry)
        self.counts[name] += 1
        if decode is arrival:
            qp = self.find_qp(report.tagged_qpn & QPN_MASK, report.tagged_qpn >> GENERATION_SHIFT)
        else:
            qp = self.find_qp(report.qpn, report.generation)
        if qp is None:
            self.counts["stale"] += 1
        else:
            qp.on_report(kind, report)
