"""Receive path of the timing model: a stream of packets, the writes of their payload, then their reports."""

from collections import deque

from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import SHED_FROM_EIGHTHS, SHED_UNTIL_EIGHTHS

from ..functional.receive_path import ReceivePath
from ..functional.report_merge import ReportMerge
from ..functional.window import PROBE
from .reporter import NODE, RETIRE, Reporter
from .timing import BEAT_BYTES, CYCLE_NS, HALF_PS, PREAMBLE_BYTES, edge
from .write_engine import NIC

Reason, Ring = abi.Reason, abi.Ring
TRANSLATION = 9 * CYCLE_NS      # of a request, see hdl/table/translate.py; longer while results wait at its output
ASK_PACE = 2 * CYCLE_NS         # between requests
# Of the window, see hdl/adamap/window/window.py, and of the builder after it, see hdl/adamap/builder/builder.py.
WINDOW = 2 * CYCLE_NS           # for a packet that does not slide it
STEP = 2                        # cycles per run that the window slides over
MARK = 2                        # cycles for the mark of a packet that slid the window, after the last run
FIRST_RUN = 2 * CYCLE_NS        # from a packet at the window until the builder may take its first run
RUN, SEAL, SEAL_OLDEST = 5 * CYCLE_NS, 4 * CYCLE_NS, 3 * CYCLE_NS      # operations of the builder, from its choice on
FULL = 9 * CYCLE_NS             # from a run that finds its node full until the report of the node
OPENED = 3 * CYCLE_NS           # from a packet at the window until the age of its hole's node counts
EXPIRED = 3 * CYCLE_NS          # from the age limit of a node until the builder detects it


class TimedReceivePath(ReceivePath):
    """:class:`ReceivePath` with the time that each step takes.

    A frame arrives with its last byte on the line. The MAC passes it on at the line rate, each beat when it is
    complete.
    """

    def __init__(self, card):
        super().__init__(card)
        self._mac_free = 0.0
        self._asked = 0.0       # time at which the newest translation request was taken
        self._stood = deque()   # (from, until) of results that waited for their packets and delayed all later requests
        self._window_free = 0.0     # end of the window's current operation
        self._waiting_frames = deque()      # frames that wait for it
        self._waiting, self._beats = deque(), 0     # frames that wait for space in the report ring, and their beats
        self._sheds_until = 0.0     # time from which new packets are accepted again if no more packets arrive
        self.ticket = 0         # of the newest packet
        self.reporter = Reporter(card)
        self._builder_free = 0.0        # end of the node builder's current operation
        self._node_at = 0.0     # report time of the nodes that are sealed now

    def receive(self, frame, at=None):
        """Process a frame from the line, its last byte now, or at a later time before which no other frame comes."""
        loop, length, gbps = self.card.loop, len(frame), self.card.line_gbps
        begin = max(self._mac_free, at or loop.now_ns) + PREAMBLE_BYTES * 8 / gbps
        self._mac_free = begin + (length + wire.LINE_OVERHEAD_BYTES - PREAMBLE_BYTES) * 8 / gbps
        last = begin + (length - 1) // BEAT_BYTES * BEAT_BYTES * 8 / gbps
        judged = edge(last - HALF_PS) + self.card.timing.judge
        headers = (edge(begin + BEAT_BYTES * 8 / gbps - HALF_PS) if length > BEAT_BYTES else
                   edge(last - HALF_PS) + CYCLE_NS)
        loop.call_at(self._judged_at(judged, headers + self.card.timing.asked - TRANSLATION), self.judge, frame)

    def _judged_at(self, read, asked):
        """Return the time of a packet's verdict, from the times of its read and of its translation request."""
        stood, asked = self._stood, max(asked, self._asked + ASK_PACE)
        while stood and stood[0][1] <= asked:
            stood.popleft()
        if stood and stood[0][0] <= asked:
            asked = stood.popleft()[1]
        self._asked = asked
        answered = asked + TRANSLATION + sum(until - since for since, until in stood)
        if answered < read:
            stood.append((answered, read))
        return max(read, answered)

    def judge(self, frame):
        """Process a frame at the window."""
        if self.card.receive_path is not self:
            return
        if self._waiting_frames or self.card.loop.now_ns < self._window_free:
            self._waiting_frames.append(frame)
            if len(self._waiting_frames) == 1:
                self.card.loop.call_at(self._window_free, self._judge_next)
        else:
            self._judge(frame)

    def _judge_next(self):
        """Process a frame that waited for the window."""
        if self.card.receive_path is self:
            self._judge(self._waiting_frames.popleft())
            if self._waiting_frames:
                self.card.loop.call_at(self._window_free, self._judge_next)

    def _judge(self, frame):
        self._window_free = self.card.loop.now_ns + WINDOW
        beats = -(-len(frame) // BEAT_BYTES)
        waiting = self._beats + self.card.pcie.writes.backlog_ns * self.card.line_gbps / 8 / BEAT_BYTES
        if waiting + beats > self.card.params.rx_buffer_beats or self._sheds(waiting) and self._is_new(frame):
            self.card.counters["rx_frames"] += 1
            self.card.refuse(Reason.BUFFER_FULL)
        elif self._waiting or self._stuck():
            self._waiting.append(frame)
            self._beats += beats
        else:
            super().receive(frame)

    def _sheds(self, waiting):
        """Return whether new packets are dropped while ``waiting`` beats are in the buffer.

        ``hdl/receive/parse.py`` also considers the number of packets.
        """
        now, eighth = self.card.loop.now_ns, self.card.params.rx_buffer_beats / 8
        above = waiting - SHED_UNTIL_EIGHTHS * eighth
        if waiting < SHED_FROM_EIGHTHS * eighth and (above < 0 or now >= self._sheds_until):
            return False
        self._sheds_until = now + above * BEAT_BYTES * 8 / self.card.line_gbps
        return True

    def _is_new(self, frame):
        """Return whether a frame is a data packet other than a retransmission."""
        header, _ = self._parse(frame)
        return header.kind == "DATA" and not header.retransmission

    def _stuck(self):
        """Return whether packets must wait until the driver has consumed reports."""
        return bool(self.card.backlog)

    def go_on(self):
        """Process waiting frames after the report ring has space again."""
        while self._waiting and not self._stuck():
            frame = self._waiting.popleft()
            self._beats -= -(-len(frame) // BEAT_BYTES)
            super().receive(frame)
        if not self._waiting:
            self._sheds_until = 0.0

    # ---------------------------------------------------------------------------------------------- writes

    def _place(self, segments, payload, judged):
        """Write the payload to memory at once, before any report of it, and schedule its write request in order."""
        super()._place(segments, payload, judged)
        self._ask(self._verdict(judged), [segment for segment in segments if segment[1]])

    def _verdict(self, judged):
        """Return the time at which a packet leaves the window: later if it slides over holes.

        In that case a seal takes another cycle. A probe leaves no mark.
        """
        cycles = 0
        if judged.lost:
            cycles = STEP * len(judged.lost) + (MARK if judged.verdict != PROBE else 0) + judged.seal
        self._window_free = self.card.loop.now_ns + WINDOW + cycles * CYCLE_NS
        return self.card.loop.now_ns + cycles * CYCLE_NS

    def _ask(self, verdict, segments):
        self.ticket = self.card.pcie.writes.stream(verdict + self.card.timing.place, segments)

    def _raw(self, header, frame):
        """Write the frame to memory first, then its ring entry."""
        card = self.card
        card.rings.newest = None
        super()._raw(header, frame)
        entry = card.rings.newest
        if entry is not None:
            self.ticket = card.pcie.writes.stream(
                card.loop.now_ns + card.timing.raw, [(0, len(frame))], NIC,
                lambda last, packet: card.frame_written(entry, last))

    # ---------------------------------------------------------------------------------------- second level

    def _space(self, incarnation):
        return self.card.second_level.space(incarnation)

    def _match(self, header, incarnation, judged, merge):
        self.card.second_level.match(header, incarnation, judged)

    def _match_probe(self, header, incarnation, merge):
        self.card.second_level.probe(header, incarnation, self._window_free - WINDOW - self.card.loop.now_ns)

    def _pass_over(self, header, incarnation, merge):
        self.card.second_level.unmatched(header, incarnation)

    def retire(self, incarnation, lag, ticket):
        """Report the nodes that retire after ``lag``, after the packet with this ticket."""
        merge = ReportMerge(None)
        self._retire(incarnation, merge)
        for _, entry in merge.drain():
            self.reporter.keep(RETIRE, self.card.loop.now_ns + lag + self.card.timing.retire_report, ticket, entry)

    # -------------------------------------------------------------------------------------------- reports

    def _node_age(self):
        """Return the time from a hole's packet until the builder checks the age of its node."""
        return super()._node_age() + OPENED

    def _age(self, key, draft):
        if self.card.builder.open.get(key) is draft:
            begin = max(self.card.loop.now_ns + EXPIRED, self._builder_free)
            self._builder_free, self._node_at = begin + SEAL_OLDEST, begin + self.card.timing.aged_report
        super()._age(key, draft)

    def _record(self, incarnation, judged, merge, header):
        """Record the runs of a packet, which the builder takes one at a time."""
        if judged.verdict == PROBE:
            self._ask(self._verdict(judged), [])
        run = self.card.loop.now_ns + FIRST_RUN
        for left in reversed(range(len(judged.lost))):
            begin = max(run, self._builder_free)
            self._builder_free, run = begin + RUN, run + (STEP if left else 1) * CYCLE_NS
            self._node_at = begin + FULL
        if judged.seal:
            begin = max(run + (MARK * CYCLE_NS if judged.lost else -CYCLE_NS), self._builder_free)
            self._builder_free, self._node_at = begin + SEAL, begin + self.card.timing.node_report
        super()._record(incarnation, judged, merge, header)

    def _emit(self, merge):
        """Emit reports: events wait for their packets, nodes do not, since they describe no received packet."""
        now = self.card.loop.now_ns
        for source, entry in merge.drain():
            if source == NODE:
                self.card.loop.call_at(self._node_at, self.reporter.enter, source, entry)
            else:
                self.reporter.keep(source, now, self.ticket, entry)
