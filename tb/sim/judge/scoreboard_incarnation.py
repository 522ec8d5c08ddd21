"""Expected behaviour of one receiving QP, compared with the reports of its card."""

from collections import Counter, deque
from dataclasses import dataclass, field

from weft.hdl.contract import abi, wire
from weft.hdl.contract.abi import ReportKind
from weft.model.functional import window as verdicts
from weft.model.functional.node import open_holes
from weft.model.functional.window import Window, signed24

PSN_SPAN = 1 << wire.PSN_BITS
HALF_SPAN = PSN_SPAN // 2


def _modulo32(value):
    return value % (1 << 32)


@dataclass
class Incarnation:
    """Incarnation of one receiving QP: its model, the expected reports, and the card's reports.

    ``exercised``, ``seen`` and ``forgotten`` belong to the scoreboard: the events that occurred, their counts, and
    retransmissions that came in time and were not counted.
    """

    qpn: int              # complete, as on the wire
    index: int
    generation: int       # low bits only, as in reports
    first_psn: int
    window: Window
    exercised: set
    seen: Counter
    forgotten: list
    lost: deque = field(default_factory=deque)        # holes not yet in a NODE report, oldest first
    missing: set = field(default_factory=set)         # reported holes that are not filled
    filled: set = field(default_factory=set)
    spanned: set = field(default_factory=set)         # received PSNs in a node, because of a span
    times_lost: Counter = field(default_factory=Counter)
    events: deque = field(default_factory=deque)      # (required, fields of the report), oldest first
    # (rsn, psn) and (probe's rsn, None), as they arrived; those before the list's head are removed.
    retransmissions: list = field(default_factory=list)
    came: set = field(default_factory=set)            # (psn, rsn) of every retransmission
    ends_due: set = field(default_factory=set)        # PSNs of retransmissions at the end of a message
    ends: set = field(default_factory=set)            # PSNs of MESSAGE_END reports
    unmatched: set = field(default_factory=set)       # (psn, rsn) of UNMATCHED reports
    next_rsn: int = 0                                 # RSN of the list's head
    marked: int = 0                                   # packets that arrived with the mark CE
    reported_marks: int = 0
    newest: int | None = None

    def take_packet(self, header, reorder_distance):
        """Process a received packet or probe."""
        probe = header.kind == "PROBE"
        if header.ce and not probe:
            self.marked += 1
            self.seen["marked"] += 1
        judged = self.window.judge(
            header.psn, retransmission=header.retransmission, probe=probe, ack_req=header.ack_req,
            reorder=reorder_distance)
        for psn, length in judged.lost:
            self.lost.extend(range(psn, psn + length))
            self.exercised.add("loss")
            self.seen["found by probe"] += length if probe else 0
        if header.retransmission or probe:
            # The window does not decide on a retransmission: the retirement of its node shows whether it counts.
            self.retransmissions.append((header.rsn, None if probe else judged.psn))
            if not probe:
                self.came.add((_modulo32(judged.psn), header.rsn))
            self.seen["probes" if probe else "retransmissions"] += 1
            if probe:
                self.exercised.add("probe")
        else:
            self._note_original(judged)
        self._expect_events(header, judged, probe)

    def _note_original(self, judged):
        """Update the statistics with an original packet."""
        if judged.verdict == verdicts.ACCEPT:
            self.seen["accepted"] += 1
            if self.newest is not None and judged.psn < self.newest:
                self.exercised.add("reorder")
            self.newest = max(judged.psn, self.newest if self.newest is not None else judged.psn)
            if self.newest // PSN_SPAN > self.first_psn // PSN_SPAN:
                self.exercised.add("psn wrap")
            if self.first_psn < HALF_SPAN <= self.newest:
                self.exercised.add("psn half")
        elif judged.verdict == verdicts.DUPLICATE:
            self.seen["duplicates"] += 1
            self.exercised.add("duplicate")
        else:
            # LATE or STALE depends on the driver's acknowledgements. The packet is a late original or a duplicate.
            self.seen["before the base"] += 1
            never_came = judged.psn in self.lost or judged.psn in self.missing
            self.exercised.add("late original" if never_came else "duplicate")

    def _expect_events(self, header, judged, probe):
        holes = judged.holes % (1 << abi.HOLES_BITS)
        reported = (_modulo32(judged.psn), _modulo32(judged.base), holes, header.retransmission)
        if probe:
            self.events.append((True, (ReportKind.PROBE, *reported)))
        elif header.ack_req and judged.verdict == verdicts.ACCEPT:
            self.events.append((True, (ReportKind.MESSAGE_END, *reported)))
        elif header.ack_req and header.retransmission:
            self.events.append((False, (ReportKind.MESSAGE_END, *reported)))
            self.ends_due.add(reported[0])
        if judged.progress:
            self.events.append((True, (ReportKind.PROGRESS, *reported)))

    def take_node(self, node):
        """Check a NODE report."""
        for psn in node.psns:
            assert self.lost, f"QP {self.qpn}: PSN {psn:#x} reported lost, but nothing is"
            expected = self.lost.popleft()
            assert psn == _modulo32(expected), f"QP {self.qpn}: PSN {psn:#x} reported lost, not {expected:#x}"
            assert psn not in self.missing and psn not in self.filled, f"QP {self.qpn}: PSN {psn:#x} lost twice"
            self.missing.add(psn)
            self.times_lost[psn] += 1

    def take_retirement(self, node, report):
        """Check a RETIRE report and its node."""
        where, count = f"QP {self.qpn}, node at RSN {node.rsn}", len(node.holes)
        assert (node.qpn, node.generation) == (self.index, self.generation), f"{where}: of another QP"
        assert node.rsn == report.rsn == self.next_rsn, f"{where}: {self.next_rsn} is the list's head"
        assert report.next_rsn == _modulo32(node.rsn + count), f"{where}: next RSN {report.next_rsn}"
        left = open_holes(node.encoding, node.holes, report.open)
        assert report.residue == report.open.bit_count() == len(left), f"{where}: wrong residue"
        self.next_rsn = report.next_rsn
        by_slot = node.encoding != abi.Encoding.BITMAP      # for a bitmap, the card ignores the slot
        arrived = self._arrivals(node.rsn, count, by_slot)
        beyond = [psn for rsn, psn in self.retransmissions if signed24(rsn - node.rsn) > count - (psn is not None)]
        by_probe = bool(beyond) and not any(psn is not None for psn in beyond)
        for slot, (psn, hole) in enumerate(zip(node.psns, node.holes, strict=True)):
            came = slot if by_slot else None, psn
            if psn not in self.missing:
                self.spanned.add(psn)
                self.exercised.add("span")
            if hole in left and (psn, (node.rsn + slot) % (1 << wire.RSN_BITS)) not in self.unmatched:
                self.times_lost[psn] += 1
                self.seen["found by probe"] += by_probe
                self.exercised.add({2: "second loss"}.get(self.times_lost[psn], "third loss"))
                if arrived.get(came):
                    self.forgotten.append(f"{where}: PSN {psn:#x} arrived in time and was not counted")
            else:
                assert came in arrived, f"{where}: PSN {psn:#x} counts as filled, but nothing came"
                announced = psn not in self.ends_due or psn in self.ends
                assert announced, f"{where}: PSN {psn:#x} retired before its MESSAGE_END"
                self.missing.discard(psn)
                self.filled.add(psn)

        self.retransmissions = [each for each in self.retransmissions if signed24(each[0] - self.next_rsn) >= 0]

    def _arrivals(self, rsn, count, by_slot):
        """Return the retransmissions for a node: {(slot or None, psn): came before any beyond the node}."""
        found, passed = {}, False
        for arrived_rsn, psn in self.retransmissions:
            slot = signed24(arrived_rsn - rsn)
            passed |= slot >= count
            if psn is not None and 0 <= slot < count:
                found.setdefault((slot if by_slot else None, _modulo32(psn)), not passed)
        return found

    def take_unmatched(self, report):
        """Check an UNMATCHED report."""
        assert (report.psn, report.rsn) in self.came, f"QP {self.qpn}: PSN {report.psn:#x}, RSN {report.rsn} never came"
        self.unmatched.add((report.psn, report.rsn))

    def take_marked(self, report):
        """Check a MARKED report."""
        assert self.reported_marks < report.marked <= self.marked, (
            f"QP {self.qpn}: {report.marked} marks reported after {self.reported_marks}, and {self.marked} arrived")
        self.reported_marks = report.marked

    def take_event(self, kind, report):
        """Check a report of any other kind."""
        reported = (kind, report.psn, report.base, report.holes, report.retransmission)
        while self.events:
            must, expected = self.events.popleft()
            if expected == reported:
                if kind is ReportKind.MESSAGE_END:
                    self.ends.add(report.psn)
                return
            assert not must, f"QP {self.qpn}: reported {reported}, not {expected}"
        raise AssertionError(f"QP {self.qpn}: reported {reported}, and nothing was due")

    def check(self, base_and_holes):
        """Check the end of all traffic; ``base_and_holes`` are the window base and hole count that the card reports."""
        where = f"QP {self.qpn}"
        due = [reported for must, reported in self.events if must]
        assert not self.lost, f"{where}: {len(self.lost)} lost PSNs never reported, the first {self.lost[0]:#x}"
        assert not self.missing, f"{where}: {len(self.missing)} holes never filled, one at {min(self.missing):#x}"
        assert not due, f"{where}: reports that never came: {due}"
        expected = (_modulo32(self.window.base), self.window.holes % (1 << abi.HOLES_BITS))
        assert base_and_holes == expected, f"{where}: base and holes are {base_and_holes}, not {expected}"
