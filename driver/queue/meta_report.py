"""Meta Reports: taken from the ring, decoded, handed to the QP they speak of."""

import collections

from weft.hdl.contract import abi

from .arrival import LIFE_SHIFT, QPN_MASK, arrival

_KIND_AT, _REASON_AT = (abi.REPORT_EVENT.offsets[name] for name in ("kind", "reason"))
_KIND_MASK = (1 << abi.REPORT_EVENT.by_name["kind"].width) - 1
_DECODERS = {kind: layout.unpack for kind, layout in abi.REPORT_LAYOUT.items()} | {
    abi.ReportKind.NODE: abi.NODE.unpack, abi.ReportKind.MESSAGE_END: arrival, abi.ReportKind.PROGRESS: arrival}
_KINDS = {int(kind): (kind, kind.name, decode) for kind, decode in _DECODERS.items()}
_KIND_BITS = _KIND_MASK << _KIND_AT      # of the first byte
_ARRIVED = frozenset({abi.ReportKind.MESSAGE_END << _KIND_AT, abi.ReportKind.PROGRESS << _KIND_AT})


def _kind(entry):
    """What an entry is, a plain number."""
    return entry[0] >> _KIND_AT & _KIND_MASK


def _tells_of_refusal(entry):
    """Whether an entry says that a packet was refused."""
    kind = _kind(entry)
    return kind == abi.ReportKind.ERROR or (kind == abi.ReportKind.PROBE and entry[_REASON_AT // 8])


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
        Reports by kind name, ``stale`` for those of QPs that are gone, ``failed`` for those that raised, and
        ``errors_dropped`` for ERROR reports that found no room in :meth:`collect`.
    collected : deque of bytes
        Taken from the ring and not handed over.
    """

    ROUND_MAX = 4096       # reports handed over in one call of :meth:`progress`
    COLLECTED_MAX = 1 << 16

    def __init__(self, ring, find_qp):
        self.ring, self.find_qp = ring, find_qp
        self.counts = collections.Counter()
        self.collected = collections.deque()

    def collect(self):
        """Make room in the ring without handing anything over: that is for the next :meth:`progress`.

        When very many are kept, ERROR reports, which only tell of packets that were refused, are dropped.
        """
        while len(self.collected) < 2 * self.COLLECTED_MAX and self._take():
            pass

    def _take(self):
        entries = self.ring.poll()
        if not entries:
            return False
        refusals = not _ARRIVED.issuperset([entry[0] & _KIND_BITS for entry in entries]) and any(
            map(_tells_of_refusal, entries))
        if len(self.collected) >= self.COLLECTED_MAX:
            kept = [entry for entry in entries if _kind(entry) != abi.ReportKind.ERROR]
            self.counts["errors_dropped"] += len(entries) - len(kept)
            entries = kept
        self.collected.extend(entries)
        self.ring.release(at_once=refusals)     # until then the card tells of no other packet of those QPs
        return True

    def progress(self):
        """Hand over what is there, oldest first; true if something was.

        Whatever is raised by one report is raised again when all others were handed over.
        """
        handed, error, collected = 0, None, self.collected
        while handed < self.ROUND_MAX and (collected or self._take()):
            while collected and handed < self.ROUND_MAX:
                handed += 1
                try:
                    self._dispatch(collected.popleft())
                except Exception as raised:
                    self.counts["failed"] += 1
                    error = error or raised
        if error is not None:
            raise error
        return handed > 0

    def forget(self):
        """Nothing was reported: the card was reset."""
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
            qp = self.find_qp(report.life & QPN_MASK, report.life >> LIFE_SHIFT)
        else:
            qp = self.find_qp(report.qpn, report.generation)
        if qp is None:
            self.counts["stale"] += 1
        else:
            qp.on_report(kind, report)
