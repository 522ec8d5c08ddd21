"""The card as it must behave, on plain Python objects: registers, rings, commands, both data paths.

The receive path takes no time. The transmit path sends one frame at a time at ``line_gbps``, raw
frames first, then retransmissions, then new work, so that a host sees rings fill and drain.
"""

import random
from collections import Counter, deque

from weft.hdl import abi, params, wire

from . import window as judge
from .builder import NodeBuilder
from .node_list import BrokenList, NodeList
from .parse import parse
from .report_merge import ReportMerge
from .rings import CardRings
from .tables import Tables
from .translate import CAN_SEND, Request, translate
from .transmit import work_packets

Reason, ReportKind, Ring = abi.Reason, abi.ReportKind, abi.Ring
EVENT_LAG_NS = 400        # what an event report may take longer than one of the list or the builder
WIRE_OVERHEAD_BYTES = 24  # FCS, preamble, gap


class QpLife:
    """What the card keeps of a live QP besides its table entry."""

    def __init__(self, card, qpn, generation, psn, line):
        self.window = judge.Window(card.params.window_bits, psn)
        self.matcher = NodeList(
            qpn,
            generation,
            line,
            lambda n: card.memory.read(n * abi.BLOCK_BYTES, abi.BLOCK_BYTES),
            card.tables.in_extent,
        )


class FunctionalCard:
    """A card.

    Parameters
    ----------
    memory : HostMemory
    loop : EventLoop
    send_frame : callable(frame)
        The line, outgoing.
    interrupt : callable(vector)
    preset : str
        Sizes.
    line_gbps : float
    seed : hashable
        With a seed the order of reports from different blocks is random, as far as the hardware leaves it open.

    Attributes
    ----------
    counters : Counter
        By the names of ``abi.COUNTERS``.
    """

    def __init__(self, memory, loop, send_frame, interrupt, *, preset="test", line_gbps=100.0, seed=None):
        self.params = params.preset(preset)
        self.memory, self.loop, self.send_frame = memory, loop, send_frame
        self.interrupt = interrupt
        self.line_gbps = line_gbps
        self.random = random.Random(f"card {seed}") if seed is not None else None
        self._reset()

    def _reset(self):
        self.counters = Counter()
        self.registers = {r.name: r.reset for r in abi.REGISTERS if r.access is abi.Access.RW}
        self.rings = CardRings(self)
        self.tables = Tables(self)
        self.builder = NodeBuilder(self.params.builder_slots)
        self.qps = {}  # qpn -> QpLife
        self.mac = self.ip = 0
        self._tx_now = {}  # ring -> iterator over the frames of the descriptor in work
        self._tx_running = False
        self._event_time = 0     # when the newest event report goes out
        self._backlog = deque()  # reports that found the ring full

    # ----------------------------------------------------------------------------------- registers

    def read(self, offset):
        """A register."""
        if abi.COUNTER_BASE <= offset < abi.COUNTER_BASE + 8 * len(abi.COUNTERS):
            name = abi.COUNTERS[(offset - abi.COUNTER_BASE) // 8][0]
            return self.counters[name] >> (32 if offset % 8 else 0)
        name = _NAME_AT.get(offset)
        p = self.params
        fixed = {
            "magic": abi.MAGIC,
            "version": abi.VERSION[0] << 24 | abi.VERSION[1] << 16 | abi.VERSION[2],
            "cap_tables": p.qpn_width | p.mr_width << 8 | p.pte_width << 16,
            "cap_adamap": p.window_bits | p.cache_entries << 16,
            "cap_misc": p.knit_extents | p.msix_vectors << 8 | p.prefetch_depth_max << 16,
            "status": 3,
            "time_ns": int(self.loop.now_ns),
        }
        if name in fixed:
            return fixed[name]
        return self.registers.get(name, self.rings.read_register(name))

    def write(self, offset, value):
        """A host write to a register."""
        name = _NAME_AT.get(offset)
        if name == "control" and value & 2:
            self._reset()
        elif name == "link_doorbell":
            self._link(abi.LINK_DOORBELL.unpack(value.to_bytes(8, "little")))
        elif name == "cum_doorbell":
            word = abi.CUM_DOORBELL.unpack(value.to_bytes(8, "little"))
            life = self._life(word.qpn, word.generation)
            if life:
                cum = life.window.cum
                life.window.cum = cum + (word.psn - cum + (1 << 31)) % (1 << 32) - (1 << 31)
        elif name in self.registers:
            self.registers[name] = value
            self.rings.written(name, value)
        elif name is not None:
            self.rings.doorbell(name, value)
        self._pump()

    def _life(self, qpn, generation):
        life, entry = self.qps.get(qpn), self.tables.qps.get(qpn)
        return life if life and entry.generation == generation else None

    def _link(self, word):
        life = self._life(word.qpn, word.generation)
        if life:
            self.counters["nodes_linked"] += (word.linked - life.matcher.linked) % (1 << 32)
            life.matcher.linked = word.linked

    @property
    def enabled(self):
        return bool(self.registers["control"] & 1)

    def _pump(self):
        """Do what the rings ask for."""
        while (command := self.rings.peek(Ring.COMMAND)) is not None:
            if not self.rings.room(Ring.RESPONSE):
                break
            self.rings.put(Ring.RESPONSE, self.tables.command(abi.COMMAND.unpack(command)))
            self.rings.finish(Ring.COMMAND)
        while self._backlog and self.rings.room(Ring.META_REPORT):
            self.rings.put(Ring.META_REPORT, self._backlog.popleft())
        if not self._tx_running and self.enabled:
            self._tx_running = True
            self.loop.call_in(0, self._transmit)

    # ------------------------------------------------------------------------------------ transmit

    def _transmit(self):
        for ring in (Ring.NIC_TX, Ring.RETRANSMIT, Ring.SEND):
            if ring not in self._tx_now:
                entry = self.rings.peek(ring)
                if entry is None:
                    continue
                self._tx_now[ring] = self._raw_frames(entry) if ring is Ring.NIC_TX else self._work_frames(entry)
            frame = next(self._tx_now[ring], None)
            if frame is None:
                del self._tx_now[ring]
                self.rings.finish(ring)
                self.loop.call_in(0, self._transmit)
                return
            self.send_frame(frame)
            self.loop.call_in(
                (max(len(frame), wire.MIN_FRAME_BYTES) + WIRE_OVERHEAD_BYTES) * 8 / self.line_gbps, self._transmit
            )
            return
        self._tx_running = False

    def _raw_frames(self, entry):
        entry = abi.NIC_TX.unpack(entry)
        if not wire.ETH.size_bytes <= entry.length <= 9216:
            self._refuse(Reason.BAD_DESCRIPTOR)
            return
        self.counters["tx_raw_frames"] += 1
        yield self.memory.read(entry.address, entry.length).ljust(wire.MIN_FRAME_BYTES, b"\0")

    def _work_frames(self, entry):
        work = abi.WORK.unpack(entry)
        if work.pmtu not in wire.PMTUS or not isinstance(work.opcode, abi.WorkOpcode):
            self._tx_error(work, Reason.BAD_DESCRIPTOR)
            return
        for packet in work_packets(work):
            result = translate(
                self.tables.qps,
                self.tables.mrs,
                self.tables.ptes,
                Request(work.lkey, packet.local_va, packet.length, 0, work.sqpn, CAN_SEND),
            )
            if result.reason is not Reason.OK:
                self._tx_error(work, result.reason)
                return
            payload = b"".join(self.memory.read(address, n) for address, n in result.segments)
            self.counters["tx_packets"] += 1
            self.counters["tx_retransmissions"] += work.retransmit
            self.counters["tx_bytes"] += len(payload)
            yield packet.frame(payload, src_mac=self.mac, src_ip=self.ip)

    def _tx_error(self, work, reason):
        self._refuse(reason)
        entry = self.tables.qps.get(work.sqpn)
        self._report(
            abi.REPORT_EVENT.pack(
                kind=ReportKind.TX_ERROR,
                reason=reason,
                qpn=work.sqpn,
                generation=entry.generation if entry else 0,
                psn=work.psn,
                va=work.local_va,
                key=work.lkey,
                length=work.length,
            )
        )

    # ------------------------------------------------------------------------------------- receive

    def receive(self, frame):
        """A frame from the line."""
        self.counters["rx_frames"] += 1
        if not self.enabled:
            self._refuse(Reason.NOT_READY)
            return
        if self._backlog:
            self._refuse(Reason.BUFFER_FULL)
            return
        header, payload = parse(frame, mac=self.mac, ip=self.ip)
        if header.kind == "RAW":
            self._raw(header, frame)
        elif header.reason is not Reason.OK:
            self._refuse(header.reason)
            self._error(header, header.reason)
        elif header.kind == "PROBE":
            self._probe(header)
        else:
            self._data(header, payload)

    def _refuse(self, reason):
        self.counters[f"drop_{reason.name.lower()}"] += 1

    def _raw(self, header, frame):
        slot = 1 << self.registers["nic_rx_slot_log2"]
        if len(frame) > slot:
            self._refuse(Reason.FRAME_TOO_LONG)
            return
        if not self.rings.room(Ring.NIC_RX):
            self._refuse(Reason.NIC_RING_FULL)
            return
        self.counters["rx_raw_frames"] += 1
        self.memory.write(self.registers["nic_rx_buffer"] + self.rings.slot(Ring.NIC_RX) * slot, frame)
        self.rings.put(Ring.NIC_RX, abi.NIC_RX.pack(roce=header.roce, length=len(frame), time_ns=int(self.loop.now_ns)))

    def _live(self, header):
        """The table entry of a QP that receives, or None; a retransmission or probe must be for this generation."""
        entry = self.tables.qps.get(header.dest_qp)
        if entry is None or entry.state not in (abi.QpState.RTR, abi.QpState.RTS):
            self._refuse(Reason.UNKNOWN_QP)
            return None
        if (header.retransmission or header.kind == "PROBE") and header.generation != entry.generation:
            self._refuse(Reason.STALE_GENERATION)
            return None
        return entry

    def _error(self, header, reason):
        entry = self.tables.qps.get(header.dest_qp)
        if entry is not None and header.kind in ("DATA", "REFUSED") and header.opcode:
            self._report(
                abi.REPORT_EVENT.pack(
                    kind=ReportKind.ERROR,
                    reason=reason,
                    opcode=header.opcode,
                    retransmission=header.retransmission,
                    qpn=header.dest_qp,
                    generation=entry.generation,
                    psn=header.psn,
                    va=header.va,
                    key=header.rkey,
                    length=header.dma_length,
                    rsn=header.rsn,
                    src_ip=header.src_ip,
                )
            )

    def _data(self, header, payload):
        entry = self._live(header)
        if entry is None:
            return
        result = translate(
            self.tables.qps,
            self.tables.mrs,
            self.tables.ptes,
            Request(header.rkey, header.va, header.dma_length, abi.AccessFlag.REMOTE_WRITE, header.dest_qp),
        )
        if result.reason is not Reason.OK:
            self._refuse(result.reason)
            self._error(header, result.reason)
            return
        life = self.qps[header.dest_qp]
        judged = life.window.judge(
            header.psn,
            retransmission=header.retransmission,
            ack_req=header.ack_req,
            rsn=header.rsn,
            floor=life.matcher.floor,
            reorder=self.registers["reorder_distance"],
        )
        if judged.verdict in (judge.ACCEPT, judge.LATE, judge.MATCH):
            self._place(result.segments, payload)
        refusal = {judge.DUPLICATE: Reason.DUPLICATE, judge.STALE: Reason.STALE_PSN, judge.STALE_RSN: Reason.STALE_RSN}
        if judged.verdict in refusal:
            self._refuse(refusal[judged.verdict])
            return
        merge = ReportMerge(self.random)
        if judged.verdict == judge.LATE:
            self.counters["rx_late_originals"] += 1
        else:
            self.counters["rx_packets"] += 1
            if header.ack_req:
                merge.add("event", self._event(ReportKind.MESSAGE_END, header, life, judged))
        if judged.verdict == judge.MATCH:
            self.counters["rx_retransmissions"] += 1
            reason = self._walk(
                header, life, lambda: life.matcher.match(judged.psn, header.rsn, self.registers["retransmit_slack"])
            )
            if reason not in (None, Reason.OK):
                self._refuse(reason)
            self._retire(life, merge)
        self._record(life, judged, merge, header)
        self._emit(merge)

    def _place(self, segments, payload):
        self.counters["rx_bytes"] += len(payload)
        done = 0
        for address, n in segments:
            self.memory.write(address, payload[done : done + n])
            done += n

    def _probe(self, header):
        if self._live(header) is None:
            return
        life, merge = self.qps[header.dest_qp], ReportMerge(self.random)
        judged = life.window.judge(header.psn, probe=True)
        self._record(life, judged, merge, header)
        merge.add("event", self._event(ReportKind.PROBE, header, life, judged))
        self._walk(header, life, lambda: life.matcher.probe(header.rsn))
        self._retire(life, merge)
        self._emit(merge)

    def _walk(self, header, life, action):
        try:
            return action()
        except BrokenList as broken:
            entry = self.tables.qps[header.dest_qp]
            self.tables.set_state(header.dest_qp, abi.QpState.ERR)
            self._refuse(broken.reason)
            self._report(
                abi.REPORT_EVENT.pack(
                    kind=ReportKind.QP_ERROR, reason=broken.reason, qpn=header.dest_qp, generation=entry.generation
                )
            )

    def _record(self, life, judged, merge, header):
        """Holes to the builder, sealed nodes and owed progress to the host."""
        key = life.matcher.qpn, life.matcher.generation
        for psn, length in judged.lost:
            self.counters["holes"] += length
            for node in self.builder.run(*key, psn, length, False):
                self._seal(node, merge)
        if judged.seal:
            for node in self.builder.run(*key, 0, 0, True):
                self._seal(node, merge)
        elif key in self.builder.open:
            self.loop.call_in(self.registers["node_age_ns"], self._age, key, self.builder.open[key])
        if judged.progress:
            merge.add("event", self._event(ReportKind.PROGRESS, header, life, judged))

    def _seal(self, node, merge):
        self.counters["nodes_sealed"] += 1
        merge.add("node", abi.REPORT_NODE.pack(kind=ReportKind.NODE, node=int.from_bytes(node.pack()[8:], "little")))

    def _age(self, key, draft):
        if self.builder.open.get(key) is draft:
            merge = ReportMerge(None)
            self._seal(self.builder.seal(key), merge)
            self._emit(merge)

    def _retire(self, life, merge):
        while life.matcher.retired:
            node = life.matcher.retired.popleft()
            self.counters["nodes_retired"] += 1
            self.counters["nodes_residue"] += bool(node.open)
            merge.add(
                "retire",
                abi.REPORT_RETIRE.pack(
                    kind=ReportKind.RETIRE,
                    line=node.line,
                    qpn=life.matcher.qpn,
                    generation=life.matcher.generation,
                    residue=node.open.bit_count(),
                    rsn=node.rsn,
                    next_rsn=(node.rsn + node.count) % (1 << 32),
                    open=node.open,
                ),
            )

    def _event(self, kind, header, life, judged):
        return abi.REPORT_EVENT.pack(
            kind=kind,
            has_imm=header.has_imm,
            retransmission=header.retransmission,
            opcode=header.opcode,
            qpn=header.dest_qp,
            generation=life.matcher.generation,
            psn=judged.psn % (1 << 32),
            base=judged.base % (1 << 32),
            holes=judged.holes % (1 << 32),
            va=header.va,
            key=header.rkey,
            length=header.dma_length,
            imm=header.imm,
            rsn=header.rsn,
            src_ip=header.src_ip,
        )

    def _emit(self, merge):
        for source, entry in merge.drain():
            if source == "event" and self.random:
                self._event_time = max(self._event_time, self.loop.now_ns + self.random.uniform(0, EVENT_LAG_NS))
                self.loop.call_at(self._event_time, self._report, entry)
            else:
                self._report(entry)

    def _report(self, entry):
        self.counters["reports"] += 1
        if self._backlog or not self.rings.room(Ring.META_REPORT):
            self._backlog.append(entry)
        else:
            self.rings.put(Ring.META_REPORT, entry)


_NAME_AT = {r.offset: r.name for r in abi.REGISTERS}
