"""What a card must make of what arrives: the models of ``model/functional`` beside the real card."""

from collections import Counter, deque
from dataclasses import dataclass, field

from weft.driver.node import Node, open_holes
from weft.hdl import abi, wire
from weft.hdl.abi import Reason, ReportKind
from weft.model.functional import window as verdicts
from weft.model.functional.parse import parse
from weft.model.functional.window import Window, signed24

PSN_SPAN = 1 << wire.PSN_BITS
HALF_SPAN = PSN_SPAN // 2
# Refusals that the frame alone decides, and those that nothing in these benches may cause.
BY_FRAME = (Reason.TRUNCATED, Reason.BAD_ICRC, Reason.BAD_HEADER, Reason.UNKNOWN_OPCODE, Reason.FRAME_TOO_LONG)
FORBIDDEN = (Reason.BAD_FRAME, Reason.UNKNOWN_QP, Reason.BAD_KEY, Reason.OUT_OF_RANGE, Reason.NO_PERMISSION,
             Reason.WRONG_PD, Reason.STALE_GENERATION, Reason.NOT_IN_NODE, Reason.BUFFER_FULL, Reason.NIC_RING_FULL,
             Reason.BAD_DESCRIPTOR, Reason.DMA_ERROR, Reason.BAD_POINTER, Reason.BAD_NODE)


def _modulo32(value):
    return value % (1 << 32)


@dataclass
class _Life:
    """One receiving QP: its model, what the model expects, and what the card said."""

    qpn: int
    generation: int
    first_psn: int
    window: Window
    lost: deque = field(default_factory=deque)        # holes that no NODE report has named yet, oldest first
    missing: set = field(default_factory=set)         # holes named and not filled
    filled: set = field(default_factory=set)
    spanned: set = field(default_factory=set)         # in a node although they are there: a span
    times_lost: Counter = field(default_factory=Counter)
    events: deque = field(default_factory=deque)      # (must come, what it says), oldest first
    retransmissions: list = field(default_factory=list)   # (rsn, psn) and (probe's rsn, None), as they arrived
    ends_due: set = field(default_factory=set)        # PSNs of retransmissions that end a message
    ends: set = field(default_factory=set)            # PSNs of MESSAGE_END reports
    unmatched: set = field(default_factory=set)       # (psn, rsn) of UNMATCHED reports
    next_rsn: int = 0                                 # of the list's head
    newest: int | None = None


class Scoreboard:
    """Follows one receiving card: every arriving frame goes through the model, every report is compared.

    It listens to the link (what arrives, in order) and to the host's memory (what the card writes to the META_REPORT
    ring), so it depends on neither the driver's bookkeeping nor the card's. It demands that

    - every PSN the model's window slides over without having seen it is reported in a NODE exactly once, in order;
    - nodes retire in order of RSN; a hole counts as filled only if its retransmission arrived, and if that arrived
      before the node was passed over it does count, in the node or by an UNMATCHED report before the node retires;
      what is left open stays missing until it is filled; PSNs that are not missing are in a node only as far as the
      driver says that it made spans;
    - MESSAGE_END, PROGRESS and PROBE reports come exactly when the model says, with its window base and hole count;
    - the MESSAGE_END of a retransmission comes before the node that it filled retires;
    - report entries lie in the ring in order, each with the phase of its lap;
    - at the end nothing is missing, and counters, window base and hole count are those of the model.

    When a report comes is left open, and so is how holes are spread over nodes: both depend on time.

    Parameters
    ----------
    context : Context
        The driver's open card.
    host : Host
    link : LinkDirection
        What arrives at the card.
    window_bits : int

    Attributes
    ----------
    exercised : set of str
        What really happened: ``loss``, ``second loss``, ``third loss``, ``reorder``, ``duplicate``, ``corruption``,
        ``late original``, ``probe``, ``span``, ``psn wrap`` (past 2^24), ``psn half`` (past 2^23),
        ``report ring wrap``.
    seen : Counter
        Arrived packets by verdict of the model, reports by kind; losses that were ``found by probe``, other than those
        of retransmissions for a list's last node.
    forbidden : set of Reason
        Refusals that must not have happened.
    """

    def __init__(self, context, host, link, window_bits):
        self.context, self.host, self.window_bits = context, host, window_bits
        self.exercised, self.seen, self.refused = set(), Counter(), Counter()
        self.forbidden = set(FORBIDDEN)
        self._lives = {}
        self._forgotten = []
        ring = context.rings[abi.Ring.META_REPORT]
        self._ring_base, self._ring_depth, self._entries = ring.buffer.physical(0), ring.depth, 0
        self._complaint = None
        host.memory.dma_taps.append(self._guarded(self._written))
        link.arrival_watchers.append(self._guarded(self._arrived))

    def _guarded(self, function):
        """The first complaint is kept for :meth:`check`; after it nothing can be compared any more."""
        def guarded(*arguments):
            if self._complaint is None:
                try:
                    function(*arguments)
                except (AssertionError, ValueError) as error:
                    self._complaint = str(error)
        return guarded

    def follow(self, qp):
        """A connected QP of the driver: from now on its packets are judged."""
        psn = qp.attr.rq_psn
        self._lives[qp.qp_num] = _Life(qp.qp_num, qp.generation, psn, Window(self.window_bits, psn))

    # ------------------------------------------------------------------------------ what arrives

    def _arrived(self, frame):
        header, _ = parse(frame, mac=self.context.mac, ip=self.context.ip)
        if header.reason is not Reason.OK:
            self.refused[header.reason] += 1
            if header.reason is Reason.BAD_ICRC:
                self.exercised.add("corruption")
            return
        life = self._lives.get(header.dest_qp) if header.kind in ("DATA", "PROBE") else None
        if life is None:
            return
        probe = header.kind == "PROBE"
        judged = life.window.judge(
            header.psn, retransmission=header.retransmission, probe=probe, ack_req=header.ack_req,
            reorder=self.context.config.reorder_distance)
        for psn, length in judged.lost:
            life.lost.extend(range(psn, psn + length))
            self.exercised.add("loss")
            self.seen["found by probe"] += length if probe else 0
        if header.retransmission or probe:
            # The window has no say in a retransmission: whether it counts is seen when its node retires.
            life.retransmissions.append((header.rsn, None if probe else judged.psn))
            self.seen["probes" if probe else "retransmissions"] += 1
            if probe:
                self.exercised.add("probe")
        else:
            self._note_original(life, judged)
        self._expect_events(life, header, judged, probe)

    def _note_original(self, life, judged):
        """Statistics of an original packet."""
        if judged.verdict == verdicts.ACCEPT:
            self.seen["accepted"] += 1
            if life.newest is not None and judged.psn < life.newest:
                self.exercised.add("reorder")
            life.newest = max(judged.psn, life.newest if life.newest is not None else judged.psn)
            if life.newest // PSN_SPAN > life.first_psn // PSN_SPAN:
                self.exercised.add("psn wrap")
            if life.first_psn < HALF_SPAN <= life.newest:
                self.exercised.add("psn half")
        elif judged.verdict == verdicts.DUPLICATE:
            self.seen["duplicates"] += 1
            self.exercised.add("duplicate")
        else:
            # LATE or STALE: that depends on what the driver has acknowledged. It may be a late original or a copy.
            self.seen["behind"] += 1
            never_came = judged.psn in life.lost or judged.psn in life.missing
            self.exercised.add("late original" if never_came else "duplicate")

    def _expect_events(self, life, header, judged, probe):
        holes = judged.holes % (1 << abi.HOLES_BITS)
        said = (_modulo32(judged.psn), _modulo32(judged.base), holes, header.retransmission)
        if probe:
            life.events.append((True, (ReportKind.PROBE, *said)))
        elif header.ack_req and judged.verdict == verdicts.ACCEPT:
            life.events.append((True, (ReportKind.MESSAGE_END, *said)))
        elif header.ack_req and header.retransmission:
            life.events.append((False, (ReportKind.MESSAGE_END, *said)))
            life.ends_due.add(said[0])
        if judged.progress:
            life.events.append((True, (ReportKind.PROGRESS, *said)))

    # ------------------------------------------------------------------------------ what is reported

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
        life = self._lives.get(report.qpn)
        assert life is not None and life.generation == report.generation, f"{kind.name} of an unknown QP {report.qpn}"
        if kind is ReportKind.NODE:
            self._take_node(life, Node.unpack(entry))
        elif kind is ReportKind.RETIRE:
            self._take_retirement(life, report)
        elif kind is ReportKind.UNMATCHED:
            assert any((rsn, _modulo32(psn)) == (report.rsn, report.psn) for rsn, psn in life.retransmissions
                       if psn is not None), f"QP {life.qpn}: PSN {report.psn:#x}, RSN {report.rsn} never came"
            life.unmatched.add((report.psn, report.rsn))
        else:
            self._take_event(life, kind, report)

    @staticmethod
    def _take_node(life, node):
        for psn in node.psns:
            assert life.lost, f"QP {life.qpn}: PSN {psn:#x} reported lost, but nothing is"
            expected = life.lost.popleft()
            assert psn == _modulo32(expected), f"QP {life.qpn}: PSN {psn:#x} reported lost, not {expected:#x}"
            assert psn not in life.missing and psn not in life.filled, f"QP {life.qpn}: PSN {psn:#x} lost twice"
            life.missing.add(psn)
            life.times_lost[psn] += 1

    def _take_retirement(self, life, report):
        node = Node.unpack(self.host.memory.read(report.line * abi.BLOCK_BYTES, abi.BLOCK_BYTES))
        where, count = f"QP {life.qpn}, node at RSN {node.rsn}", len(node.holes)
        assert (node.qpn, node.generation) == (life.qpn, life.generation), f"{where}: of another QP"
        assert node.rsn == report.rsn == life.next_rsn, f"{where}: {life.next_rsn} is the list's head"
        assert report.next_rsn == _modulo32(node.rsn + count), f"{where}: next RSN {report.next_rsn}"
        left = open_holes(node.encoding, node.holes, report.open)
        assert report.residue == report.open.bit_count() == len(left), f"{where}: wrong residue"
        life.next_rsn = report.next_rsn
        by_slot = node.encoding != abi.Encoding.BITMAP      # else the card cannot tell
        arrived = self._arrivals(life, node.rsn, count, by_slot)
        beyond = [psn for rsn, psn in life.retransmissions if signed24(rsn - node.rsn) > count - (psn is not None)]
        by_probe = bool(beyond) and not any(psn is not None for psn in beyond)
        for slot, (psn, hole) in enumerate(zip(node.psns, node.holes, strict=True)):
            came = slot if by_slot else None, psn
            if psn not in life.missing:
                life.spanned.add(psn)
                self.exercised.add("span")
            if hole in left and (psn, (node.rsn + slot) % (1 << wire.RSN_BITS)) not in life.unmatched:
                life.times_lost[psn] += 1
                self.seen["found by probe"] += by_probe
                self.exercised.add({2: "second loss"}.get(life.times_lost[psn], "third loss"))
                if arrived.get(came):
                    self._forgotten.append(f"{where}: PSN {psn:#x} came in time and was not counted")
            else:
                assert came in arrived, f"{where}: PSN {psn:#x} counts as filled, but nothing came"
                told = psn not in life.ends_due or psn in life.ends
                assert told, f"{where}: PSN {psn:#x} retired before its MESSAGE_END"
                life.missing.discard(psn)
                life.filled.add(psn)

    @staticmethod
    def _arrivals(life, rsn, count, by_slot):
        """Retransmissions for a node: (slot or None, psn) → whether it came before anything beyond the node."""
        found, passed = {}, False
        for arrived_rsn, psn in life.retransmissions:
            slot = signed24(arrived_rsn - rsn)
            passed |= slot >= count
            if psn is not None and 0 <= slot < count:
                found.setdefault((slot if by_slot else None, _modulo32(psn)), not passed)
        return found

    @staticmethod
    def _take_event(life, kind, report):
        said = (kind, report.psn, report.base, report.holes, report.retransmission)
        while life.events:
            must, expected = life.events.popleft()
            if expected == said:
                if kind is ReportKind.MESSAGE_END:
                    life.ends.add(report.psn)
                return
            assert not must, f"QP {life.qpn}: reported {said}, not {expected}"
        raise AssertionError(f"QP {life.qpn}: reported {said}, and nothing was due")

    # ------------------------------------------------------------------------------ the end

    def check(self, counters, queries, spans=0):
        """Everything that must hold when all traffic has ended.

        Parameters
        ----------
        counters : dict
            The card's, by name.
        queries : dict
            QPN to (window base, holes counted), as QP_QUERY answers.
        spans : int
            PSNs the driver added to the lost ones when it made spans.
        """
        assert self._complaint is None, self._complaint
        for life in self._lives.values():
            where = f"QP {life.qpn}"
            due = [said for must, said in life.events if must]
            assert not life.lost, f"{where}: {len(life.lost)} lost PSNs never reported, the first {life.lost[0]:#x}"
            assert not life.missing, f"{where}: {len(life.missing)} holes never filled, one at {min(life.missing):#x}"
            assert not due, f"{where}: reports that never came: {due}"
            expected = (_modulo32(life.window.base), life.window.holes % (1 << abi.HOLES_BITS))
            assert queries[life.qpn] == expected, f"{where}: base and holes are {queries[life.qpn]}, not {expected}"
        spanned = sum(len(life.spanned) for life in self._lives.values())
        assert spanned <= spans, f"{spanned} PSNs were asked for that are there, {spans} are in spans"
        assert not self._forgotten, self._forgotten[0]
        self._check_counters(counters)

    def _check_counters(self, counters):
        seen = self.seen
        expected = {
            "holes": sum(life.window.holes for life in self._lives.values()),
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

    def require(self, *names):
        """Assert that these really happened."""
        missing = set(names) - self.exercised
        assert not missing, f"never happened: {', '.join(sorted(missing))}; what did: {sorted(self.exercised)}"


def laps(context):
    """How often each ring of an open card went round, by the driver's free-running indices."""
    return {ring.name: handle.prod / handle.depth for ring, handle in context.rings.items()}
