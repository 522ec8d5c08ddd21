"""Comparison of a receiving card with the functional model (``model/functional``)."""

from collections import Counter

from weft.hdl.contract import abi
from weft.hdl.contract.abi import Reason, ReportKind
from weft.model.functional.node import Node
from weft.model.functional.parse import parse
from weft.model.functional.pause import is_mac_control, understood
from weft.model.functional.window import Window
from weft.tb.sim.judge.scoreboard_incarnation import Incarnation

# Reasons to drop that depend on the frame alone, and reasons that must not occur in these benches.
BY_FRAME = (Reason.TRUNCATED, Reason.BAD_ICRC, Reason.BAD_HEADER, Reason.UNKNOWN_OPCODE, Reason.FRAME_TOO_LONG,
            Reason.BAD_PAUSE)
FORBIDDEN = (Reason.BAD_FRAME, Reason.UNKNOWN_QP, Reason.BAD_KEY, Reason.OUT_OF_RANGE, Reason.NO_PERMISSION,
             Reason.WRONG_PD, Reason.STALE_GENERATION, Reason.NOT_IN_NODE, Reason.BUFFER_FULL, Reason.NIC_RING_FULL,
             Reason.BAD_DESCRIPTOR, Reason.DMA_ERROR, Reason.BAD_POINTER, Reason.BAD_NODE)


class Scoreboard:
    """Scoreboard of one receiving card: every received frame goes through the model, and every report is compared.

    It monitors the link (received frames, in order) and the host's memory (the card's writes to the META_REPORT ring),
    so it depends on neither the driver's bookkeeping nor the card's. It requires that

    - every PSN that leaves the model's window without having been received is reported in a NODE exactly once, in
      order;
    - nodes retire in order of RSN;
    - a hole counts as filled only if its retransmission arrived; if that arrived before any for a later node, it
      must count, in the node or by an UNMATCHED report before the node retires;
    - a hole left open stays missing until it is filled;
    - PSNs that are not missing are in a node only as far as the driver reports that it made spans;
    - MESSAGE_END, PROGRESS and PROBE reports come exactly when the model predicts them, with its window base and hole
      count;
    - the MESSAGE_END of a retransmission comes before the node that it filled retires;
    - a MARKED report names a count of marked packets that arrived, more than the one before it;
    - report entries are in the ring in order, each with the phase of its lap;
    - at the end no PSN is missing, and counters, window base and hole count are those of the model.

    The time of a report and the distribution of holes over nodes are not checked, because both depend on timing.

    Attributes
    ----------
    exercised : set of str
        Events that occurred: ``loss``, ``second loss``, ``third loss``, ``reorder``, ``duplicate``, ``corruption``,
        ``late original``, ``probe``, ``span``, ``psn wrap`` (past 2^24), ``psn half`` (past 2^23),
        ``report ring wrap``.
    seen : Counter
        Received packets by the model's verdict, and reports by kind; ``found by probe``: losses, other than those of
        retransmissions for a list's last node.
    forbidden : set of Reason
        Reasons to drop that must not occur.
    """

    def __init__(self, context, host, link, window_bits):
        self.context, self.host, self.window_bits = context, host, window_bits
        self.exercised, self.seen, self.refused = set(), Counter(), Counter()
        self.forbidden = set(FORBIDDEN)
        self._incarnations, self._forgotten, self._complaint = {}, [], None
        ring = context.rings[abi.Ring.META_REPORT]
        self._ring_base, self._ring_depth, self._entries = ring.buffer.physical(0), ring.depth, 0
        host.memory.dma_taps.append(self._guarded(self._written))
        link.arrival_watchers.append(self._guarded(self._arrived))

    def _guarded(self, function):
        """Wrap a callback to keep the first failure for :meth:`check`; later events cannot be compared."""
        def guarded(*arguments):
            if self._complaint is None:
                try:
                    function(*arguments)
                except (AssertionError, ValueError) as error:
                    self._complaint = str(error)
        return guarded

    def follow(self, qp):
        """Check the packets of a connected QP of the driver from now on."""
        psn = qp.attr.rq_psn
        self._incarnations[qp.index] = Incarnation(qp.qp_num, qp.index, qp.generation, psn,
                                                   Window(self.window_bits, psn), self.exercised, self.seen,
                                                   self._forgotten)

    # ------------------------------------------------------------------------- received frames

    def _arrived(self, frame):
        if is_mac_control(frame):
            self.refused[Reason.BAD_PAUSE] += understood(frame) is None
            return
        header, _ = parse(frame, mac=self.context.mac, ip=self.context.ip)
        if header.reason is not Reason.OK:
            self.refused[header.reason] += 1
            if header.reason is Reason.BAD_ICRC:
                self.exercised.add("corruption")
            return
        incarnation = next((incarnation for incarnation in self._incarnations.values()
                            if incarnation.qpn == header.dest_qp), None)
        if incarnation is None or header.kind not in ("DATA", "PROBE"):
            return
        incarnation.take_packet(header, self.context.config.reorder_distance)

    # ------------------------------------------------------------------------------ reports

    def _written(self, address, data):
        at = address - self._ring_base
        if not 0 <= at < self._ring_depth * abi.BLOCK_BYTES:
            return
        assert at % abi.BLOCK_BYTES == len(data) % abi.BLOCK_BYTES == 0, f"{len(data)} bytes at {at} of META_REPORT"
        for offset in range(0, len(data), abi.BLOCK_BYTES):
            slot, lap = self._entries % self._ring_depth, self._entries // self._ring_depth
            entry = data[offset:offset + abi.BLOCK_BYTES]
            assert (at + offset) // abi.BLOCK_BYTES == slot, "META_REPORT entries out of order"
            assert entry[0] & 1 == 1 - lap % 2, f"META_REPORT entry {self._entries} has the wrong phase"
            self._entries += 1
            if lap:
                self.exercised.add("report ring wrap")
            self._reported(entry)

    def _reported(self, entry):
        kind = abi.REPORT_EVENT.unpack(entry).kind
        assert isinstance(kind, ReportKind), f"a report of kind {kind}"
        self.seen[kind.name] += 1
        report = (abi.NODE if kind is ReportKind.NODE else abi.REPORT_LAYOUT[kind]).unpack(entry)
        incarnation = self._incarnations.get(report.qpn)
        assert incarnation is not None and incarnation.generation == report.generation, (
            f"{kind.name} of an unknown QP {report.qpn}")
        if kind is ReportKind.NODE:
            incarnation.take_node(Node.unpack(entry))
        elif kind is ReportKind.RETIRE:
            node = Node.unpack(self.host.memory.read(report.line * abi.BLOCK_BYTES, abi.BLOCK_BYTES))
            incarnation.take_retirement(node, report)
        elif kind is ReportKind.UNMATCHED:
            incarnation.take_unmatched(report)
        elif kind is ReportKind.MARKED:
            incarnation.take_marked(report)
        elif kind is not ReportKind.PACED:      # the driver compares these with what it passed to the card
            incarnation.take_event(kind, report)

    # ------------------------------------------------------------------------------ final checks

    def check(self, counters, queries, spans=0):
        """Check the conditions that must hold when all traffic has ended.

        ``counters`` are those of the card by name, ``queries`` the results of QP_QUERY, ``{QPN: (window base, holes
        counted)}``, and ``spans`` the PSNs that the driver added to the lost ones when it made spans.
        """
        assert self._complaint is None, self._complaint
        for incarnation in self._incarnations.values():
            incarnation.check(queries[incarnation.qpn])
        spanned = sum(len(incarnation.spanned) for incarnation in self._incarnations.values())
        assert spanned <= spans, f"{spanned} PSNs were requested although they arrived, {spans} are in spans"
        assert not self._forgotten, self._forgotten[0]
        self._check_counters(counters)

    def _check_counters(self, counters):
        seen = self.seen
        expected = {
            "holes": sum(incarnation.window.holes for incarnation in self._incarnations.values()),
            "nodes_sealed": seen["NODE"], "nodes_retired": seen["RETIRE"], "reports": self._entries,
            "rx_unmatched": seen["UNMATCHED"],
            **{f"drop_{reason.name.lower()}": self.refused[reason] for reason in BY_FRAME},
            **{f"drop_{reason.name.lower()}": 0 for reason in self.forbidden},
        }
        found = {name: counters[name] for name in expected}
        assert found == expected, f"counters (found, expected): " \
            f"{ {name: (found[name], expected[name]) for name in found if found[name] != expected[name]} }"
        originals = counters["rx_packets"] - counters["rx_retransmissions"] - counters["rx_late_originals"]
        assert originals == seen["accepted"], f"{originals} originals accepted, not {seen['accepted']}"
        assert counters["drop_duplicate"] >= seen["duplicates"]
        assert seen["MARKED"] <= counters["rx_marked"] <= seen["marked"], f"{counters['rx_marked']} marked packets"

    def require(self, *names):
        """Assert that these events occurred."""
        missing = set(names) - self.exercised
        assert not missing, f"never happened: {', '.join(sorted(missing))}; happened: {sorted(self.exercised)}"


def laps(context):
    """Return the number of laps of each ring of an open card, from the driver's free-running indices."""
    return {ring.name: handle.prod / handle.depth for ring, handle in context.rings.items()}
