"""Receive path of the functional card: from a frame to memory and reports, without time."""

from functools import lru_cache

from weft.hdl.contract import abi

from ..functional import window as judge
from .data_frame import DataFrame
from .node_list import BrokenList
from .parse import parse
from .pause import is_mac_control, understood
from .report_merge import ReportMerge
from .translate import Request, locate

Reason, ReportKind, Ring = abi.Reason, abi.ReportKind, abi.Ring
REFUSAL = {judge.DUPLICATE: Reason.DUPLICATE, judge.STALE: Reason.STALE_PSN, judge.FAR: Reason.FAR_PSN}
_WRITE = int(abi.AccessFlag.REMOTE_WRITE)
_RECEIVES, _OK = (abi.QpState.RTS, abi.QpState.RTR), Reason.OK      # each access to a member of an enum takes time
_split_qpn = lru_cache(maxsize=4096)(abi.split_qpn)      # the same few QPNs arrive in many packets
_INTERVALS = 1 << 20         # values of `cnp_interval_ns`
EVENT_LAG_NS = 400  # largest delay of an event report relative to a report of the builder


class ReceivePath:
    """Receive path: parse, check, window, placement, record, report.

    Parameters
    ----------
    card : FunctionalCard
    """

    def __init__(self, card):
        self.card = card
        self._qpn_width = card.params.qpn_width
        self._event_time = 0   # time of the newest event report
        self._drop_reported = set()     # indices of QPs with an unread report of a dropped packet
        self._access = Request(0, 0, 0, _WRITE, 0)      # of the newest packet

    def receive(self, frame):
        """Process a frame from the line."""
        card = self.card
        if not isinstance(frame, DataFrame) and is_mac_control(frame):
            self._pause(frame)
            return
        card.counters["rx_frames"] += 1
        if not card.enabled:
            card.refuse(Reason.NOT_READY)
            return
        if card.backlog:
            card.refuse(Reason.BUFFER_FULL)
            return
        header, payload = self._parse(frame)
        if header.kind == "RAW" and not header.roce:
            self._raw(header, payload)
        else:
            self.take(header, payload)

    def _pause(self, frame):
        """Process a MAC control frame and drop it. A card without time has no frames to hold back."""
        pfc = understood(frame)
        if pfc is None:
            self.card.refuse(Reason.BAD_PAUSE)
            return
        word = abi.PFC_WORD.unpack(self.card.registers["pfc"].to_bytes(abi.PFC_WORD.size_bytes, "little"))
        self.card.counters["rx_pauses"] += pfc.classes >> word.priority & 1

    def _parse(self, frame):
        mac, ip, host_qpns = self.card.mac, self.card.ip, self.card.registers["host_qpns"]
        if isinstance(frame, DataFrame):
            if frame.reaches(mac, ip, host_qpns):
                return frame, frame.payload
            frame = bytes(frame)
        return parse(frame, mac=mac, ip=ip, host_qpns=host_qpns)

    def take(self, header, payload):
        """Process a parsed RoCE packet."""
        kind = header.kind
        if kind == "REFUSED" and not header.opcode:
            self.card.refuse(header.reason)   # the QP is unknown
            return
        index, generation = _split_qpn(header.dest_qp, self._qpn_width)
        if (entry := self._live(header, index, generation)) is None:
            return
        if kind == "DATA":
            self._data(header, payload, index, entry)
        elif kind == "REFUSED":
            self._refuse(header, header.reason, index, entry)
        elif kind == "RAW":
            self._raw(header, payload)
        else:
            self._probe(header, index, entry)

    def _raw(self, header, frame):
        slot = 1 << self.card.registers["nic_rx_slot_log2"]
        if len(frame) > slot:
            self.card.refuse(Reason.FRAME_TOO_LONG)
            return
        rings = self.card.rings
        if not rings.space(Ring.NIC_RX) or (rings.half_taken(Ring.NIC_RX) and not header.roce):
            self.card.refuse(Reason.NIC_RING_FULL)
            return
        self.card.counters["rx_raw_frames"] += 1
        self.card.memory.write(self.card.registers["nic_rx_buffer"] + self.card.rings.slot(Ring.NIC_RX) * slot, frame)
        entry = abi.NIC_RX.pack(roce=header.roce, host=header.host, length=len(frame),
                                time_ns=int(self.card.loop.now_ns))
        self.card.rings.put(Ring.NIC_RX, entry)

    def _live(self, header, index, generation):
        """Return the table entry of a QP that receives, or None; the packet must have its generation and peer."""
        entry = self.card.tables.qps.get(index)
        if entry is None:
            self.card.refuse(Reason.UNKNOWN_QP)
            return None
        if generation != entry.generation:
            self.card.refuse(Reason.STALE_GENERATION)
            return None
        if entry.state not in _RECEIVES:
            self.card.refuse(Reason.UNKNOWN_QP)
            if header.kind == "PROBE" and header.src_ip == entry.peer_ip:
                self._report_drop(index, self._event(ReportKind.PROBE, header, index, generation,
                                                     reason=Reason.UNKNOWN_QP))
            return None
        if header.src_ip != entry.peer_ip:
            self.card.refuse(Reason.WRONG_PEER)
            return None
        return entry

    def _refuse(self, header, reason, index, entry):
        """Drop a packet of a faulty peer, and report it to the driver."""
        self.card.refuse(reason)
        self._report_drop(index, self._event(ReportKind.ERROR, header, index, entry.generation, reason=reason))

    def _report_drop(self, index, report):
        """Report a dropped packet of a QP, unless an earlier report of the QP is unread or the ring is half full."""
        if not self.card.rings.marked[Ring.META_REPORT]:
            self._drop_reported.clear()
        if index in self._drop_reported or self.card.rings.half_taken(Ring.META_REPORT):
            self.card.counters["reports_coalesced"] += 1
            return
        self._drop_reported.add(index)
        self.card.report(report, mark=True)

    def _data(self, header, payload, index, entry):
        card, tables, access = self.card, self.card.tables, self._access
        access.key, access.va, access.length, access.qpn = header.rkey, header.va, header.length, index
        reason, segments = locate(entry, tables.mrs, tables.ptes, access)
        if reason is not _OK:
            self._refuse(header, reason, index, entry)
            return
        incarnation = card.qps[index]
        retransmission, ack_req = header.retransmission, header.ack_req
        judged = incarnation.window.judge(
            header.psn, retransmission=retransmission, ack_req=ack_req, reorder=card.registers["reorder_distance"],
            space=not retransmission or self._space(incarnation), guard=entry.psn_guard)
        verdict = judged.verdict
        if verdict in REFUSAL:
            card.refuse(REFUSAL[verdict])
            return
        self._place(segments, payload, judged)
        card.counters["rx_packets"] += 1
        if verdict == judge.ACCEPT and not (ack_req or judged.lost or judged.progress or header.ce):
            return      # within a message: nothing to report
        merge = ReportMerge(card.random)
        if verdict == judge.LATE:
            card.counters["rx_late_originals"] += 1
        elif ack_req:
            merge.add("event", self._judged_event(ReportKind.MESSAGE_END, header, incarnation, judged))
        if verdict == judge.MATCH:
            card.counters["rx_retransmissions"] += 1
            self._match(header, incarnation, judged, merge)
        elif verdict == judge.UNMATCHED:
            self._not_matched(header, incarnation, judged, merge)
        if header.ce:
            self._note_mark(header, incarnation, judged, merge)
        self._record(incarnation, judged, merge, header)
        self._emit(merge)

    def _note_mark(self, header, incarnation, judged, merge):
        """Count a packet with the mark CE. It is reported if the interval since the last report of the QP is over.

        A packet with a report UNMATCHED or PROGRESS has no further one, and none comes while half of the ring is taken.
        """
        card = self.card
        card.counters["rx_marked"] += 1
        incarnation.marked = (incarnation.marked + 1) % (1 << abi.REPORT_EVENT.by_name["marked"].width)
        if judged.progress or judged.verdict == judge.UNMATCHED or card.rings.half_taken(Ring.META_REPORT):
            return
        step = int(card.loop.now_ns) // abi.MARK_STEP_NS
        interval = -(-(card.registers["cnp_interval_ns"] % _INTERVALS) // abi.MARK_STEP_NS)
        if incarnation.reported_step is None or step - incarnation.reported_step > interval:
            incarnation.reported_step = step
            merge.add("event", self._judged_event(ReportKind.MARKED, header, incarnation, judged,
                                                  marked=incarnation.marked))

    def _space(self, incarnation):
        """Return whether the matcher can accept a retransmission; in this model, always."""
        return True

    def _match(self, header, incarnation, judged, merge):
        """Match a retransmission with its node."""
        slack = self.card.registers["retransmit_slack"]
        self.refuse_match(self._walk(header, incarnation,
                                     lambda: incarnation.matcher.match(judged.psn, header.rsn, slack)))
        self._retire(incarnation, merge)

    def refuse_match(self, reason):
        if reason not in (None, Reason.OK):
            self.card.refuse(reason)

    def _not_matched(self, header, incarnation, judged, merge):
        """Report a retransmission to the driver that finds no free entry in the match queue."""
        self.card.counters["rx_retransmissions"] += 1
        self.card.counters["rx_unmatched"] += 1
        merge.add("event", self._judged_event(ReportKind.UNMATCHED, header, incarnation, judged))
        self._pass_over(header, incarnation, merge)

    def _pass_over(self, header, incarnation, merge):
        """Apply to the list a retransmission that is left to the driver."""
        self._walk(header, incarnation,
                   lambda: incarnation.matcher.not_matched(header.rsn, self.card.registers["retransmit_slack"]))
        self._retire(incarnation, merge)

    def _place(self, segments, payload, judged):
        self.card.counters["rx_bytes"] += len(payload)
        done = 0
        for address, n in segments:
            self.card.memory.write(address, payload[done : done + n])
            done += n

    def _probe(self, header, index, entry):
        incarnation, merge = self.card.qps[index], ReportMerge(self.card.random)
        judged = incarnation.window.judge(header.psn, probe=True, guard=entry.psn_guard)
        if judged.verdict in REFUSAL:
            self.card.refuse(REFUSAL[judged.verdict])
            return
        merge.add("event", self._judged_event(ReportKind.PROBE, header, incarnation, judged))
        self._record(incarnation, judged, merge, header)
        self.card.found_by_probe += [(index, psn, n) for psn, n in judged.lost]
        self._match_probe(header, incarnation, merge)
        self._emit(merge)

    def _match_probe(self, header, incarnation, merge):
        """Apply a probe to the list."""
        self._walk(header, incarnation, lambda: incarnation.matcher.probe(header.rsn))
        self.card.found_by_probe += [
            (incarnation.matcher.qpn, psn, 1)
            for node in incarnation.matcher.retired for psn in node.open_psns
        ]
        self._retire(incarnation, merge)

    def _walk(self, header, incarnation, action):
        try:
            return action()
        except BrokenList as broken:
            self.broken(incarnation, broken)

    def broken(self, incarnation, broken):
        """Stop the QP of an invalid list."""
        self.card.tables.set_state(incarnation.matcher.qpn, abi.QpState.ERR)
        self.card.refuse(broken.reason)
        self.card.report(abi.REPORT_EVENT.pack(
            kind=ReportKind.QP_ERROR, reason=broken.reason, qpn=incarnation.matcher.qpn,
            generation=incarnation.matcher.generation))

    def _record(self, incarnation, judged, merge, header):
        """Pass holes to the builder, and report sealed nodes and owed progress to the host."""
        key = incarnation.matcher.qpn, incarnation.matcher.generation
        for psn, length in judged.lost:
            self.card.counters["holes"] += length
            for node in self.card.builder.run(*key, psn, length, False):
                self._seal(node, merge)
        if judged.seal:
            for node in self.card.builder.run(*key, 0, 0, True):
                self._seal(node, merge)
        elif judged.lost and key in self.card.builder.open:
            self.card.loop.call_in(self._node_age(), self._age, key, self.card.builder.open[key])
        if judged.progress:
            merge.add("event", self._judged_event(ReportKind.PROGRESS, header, incarnation, judged))

    def _node_age(self):
        return min(self.card.registers["node_age_ns"], abi.NODE_AGE_MAX_NS)

    def _seal(self, node, merge):
        self.card.counters["nodes_sealed"] += 1
        merge.add("node", abi.REPORT_NODE.pack(kind=ReportKind.NODE, node=int.from_bytes(node.pack()[8:], "little")))

    def _age(self, key, draft):
        if self.card.builder.open.get(key) is draft:
            merge = ReportMerge(None)
            self._seal(self.card.builder.seal(key), merge)
            self._emit(merge)

    def _retire(self, incarnation, merge):
        while incarnation.matcher.retired:
            node = incarnation.matcher.retired.popleft()
            self.card.counters["nodes_retired"] += 1
            self.card.counters["nodes_residue"] += bool(node.open)
            merge.add(
                "retire",
                abi.REPORT_RETIRE.pack(
                    kind=ReportKind.RETIRE,
                    line=node.line,
                    qpn=incarnation.matcher.qpn,
                    generation=incarnation.matcher.generation,
                    residue=node.left,
                    rsn=node.rsn,
                    next_rsn=node.next_rsn,
                    open=node.open,
                ),
            )

    @staticmethod
    def _event(kind, header, index, generation, **more):
        """Return an event report with the fields of a packet's header, and ``more``."""
        return abi.REPORT_EVENT.pack(**{
            "kind": kind, "retransmission": header.retransmission, "opcode": header.opcode, "qpn": index,
            "generation": generation % (1 << abi.GENERATION_BITS), "psn": header.psn, "va": header.va,
            "key": header.rkey, "length": header.dma_length, "rsn": header.rsn, "src_ip": header.src_ip, **more})

    def _judged_event(self, kind, header, incarnation, judged, **more):
        """Return the event report of a packet with the result of the window."""
        return self._event(
            kind, header, incarnation.matcher.qpn, incarnation.matcher.generation, has_imm=header.has_imm,
            imm=header.imm, psn=judged.psn % (1 << 32), base=judged.base % (1 << 32),
            holes=judged.holes % (1 << abi.HOLES_BITS), **more)

    def _emit(self, merge):
        """Emit reports: events with a delay, retirements after the events of all packets so far, others at once."""
        entries, loop = list(merge.drain()), self.card.loop
        if not entries:
            return
        if self.card.random:
            for entry in (entry for source, entry in entries if source == "event"):
                lag = self.card.random.uniform(0, EVENT_LAG_NS)
                self._event_time = max(self._event_time, loop.now_ns + lag)
                loop.call_at(self._event_time, self._report_later, entry)
            entries = [(source, entry) for source, entry in entries if source != "event"]
        for source, entry in entries:
            if source == "retire" and self._event_time > loop.now_ns:
                loop.call_at(self._event_time, self._report_later, entry)
            else:
                self.card.report(entry)

    def _report_later(self, entry):
        if self.card.receive_path is self:   # false after a reset of the card
            self.card.report(entry)
