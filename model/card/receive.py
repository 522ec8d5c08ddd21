"""The receive path in time: a stream of packets, payload on its way to memory, reports behind it."""

from collections import deque

from weft.hdl import abi

from ..functional.receive_path import ReceivePath
from ..functional.report_merge import ReportMerge
from .timing import BEAT_BYTES, edge

Reason, Ring = abi.Reason, abi.Ring


class TimedReceivePath(ReceivePath):
    """:class:`ReceivePath` with the time that each step takes.

    A frame arrives with its last byte on the line; the MAC hands it on at the line's rate, as the gateware's does.
    """

    def __init__(self, card):
        super().__init__(card)
        self._mac_free = 0.0
        self._waiting, self._beats = deque(), 0     # frames that wait for space in the report ring, and their beats
        self.placed = 0.0       # when the payload of all packets so far is through the write engine
        self._due = {}          # source -> when its newest report goes out
        self._node_lag = 0.0    # what the nodes sealed now take until their report

    def receive(self, frame, at=None):
        """A frame from the line, its last byte now, or at a later time that no other frame comes before."""
        loop = self.card.loop
        self._mac_free = max(self._mac_free, at or loop.now_ns) + len(frame) * 8 / self.card.line_gbps
        loop.call_at(edge(self._mac_free + self.card.timing.judge), self.judge, frame)

    def judge(self, frame):
        """A frame reaches the window."""
        if self.card.receive_path is not self:
            return
        beats = -(-len(frame) // BEAT_BYTES)
        behind = (self.placed - self.card.loop.now_ns) * self.card.line_gbps / 8 / BEAT_BYTES
        if self._beats + max(0.0, behind) + beats > self.card.params.rx_buffer_beats:
            self.card.counters["rx_frames"] += 1
            self.card.refuse(Reason.BUFFER_FULL)
        elif self._waiting or self._stuck():
            self._waiting.append(frame)
            self._beats += beats
        else:
            super().receive(frame)

    def _parse(self, frame):
        if isinstance(frame, bytes):
            return super()._parse(frame)
        return frame.parsed(self.card.mac, self.card.ip, self.card.registers["host_qpns"])

    def _stuck(self):
        """Whether packets wait until the driver has taken reports."""
        return bool(self.card.backlog)

    def go_on(self):
        """The report ring has space again."""
        while self._waiting and not self._stuck():
            frame = self._waiting.popleft()
            self._beats -= -(-len(frame) // BEAT_BYTES)
            super().receive(frame)

    # ------------------------------------------------------------------------------------- what is written

    def _place(self, segments, payload, judged):
        """The payload is in memory before any report that speaks of it; its place on the way is taken now.

        The window slides over holes, and seals a node, before it lets a packet go.
        """
        super()._place(segments, payload, judged)
        timing = self.card.timing
        at = self.card.loop.now_ns + timing.place + bool(judged.lost) * timing.slide + judged.seal * timing.seal
        for _, length in segments:
            self.placed = self.card.pcie.write_payload(at, length)

    def _raw(self, header, frame):
        """The frame goes to memory first, then the entry that tells of it."""
        self.card.pcie.write(self.card.loop.now_ns + self.card.timing.raw, len(frame))
        super()._raw(header, frame)

    # ---------------------------------------------------------------------------------------- second level

    def _room(self, life):
        return self.card.second_level.room(life)

    def _match(self, header, life, judged, merge):
        self.card.second_level.match(header, life, judged)

    def _match_probe(self, header, life, merge):
        self.card.second_level.probe(header, life)

    def _pass_over(self, header, life, merge):
        self.card.second_level.unmatched(header, life)

    def retire(self, life, lag):
        """Report the nodes that leave so much later."""
        merge = ReportMerge(None)
        self._retire(life, merge)
        self._emit(merge, lag)

    # -------------------------------------------------------------------------------------------- reports

    def _age(self, key, draft):
        self._node_lag = self.card.timing.aged_report
        super()._age(key, draft)

    def _record(self, life, judged, merge, header):
        timing = self.card.timing
        self._node_lag = timing.node_report + bool(judged.lost) * timing.hole_run
        super()._record(life, judged, merge, header)

    def _emit(self, merge, retire_lag=0.0):
        """Each source has its own way to the reporter and keeps its order there."""
        timing, loop = self.card.timing, self.card.loop
        for source, entry in merge.drain():
            at = loop.now_ns + {"event": timing.event_report, "node": self._node_lag,
                                "retire": timing.retire_report + retire_lag}[source]
            if source != "node":
                at = max(at, self.placed + (timing.placed if source == "event" else timing.placed_retire))
            if source == "retire":
                at = max(at, self._due.get("event", 0.0))
            at = self._due[source] = max(at, self._due.get(source, 0.0))
            loop.call_at(at, self._report_later, entry)
