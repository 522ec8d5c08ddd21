"""Tests of the receive subsystem from the MAC to the DMA engine, with stand-ins for translation, window and DMA."""

import random
from collections import Counter, deque

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hdl.contract import wire
from weft.hdl.contract.abi import (
    GENERATION_BITS,
    HOLES_BITS,
    HOST_QPNS,
    MARK_STEP_NS,
    REPORT_EVENT,
    AccessFlag,
    QpState,
    Reason,
    ReportKind,
    make_qpn,
    split_qpn,
)
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import DmaRequest, RawFrame, Report, Verdict, WindowRequest, WindowVerdict, qp_state
from weft.hdl.receive.in_flight import ARRIVAL_TIMEOUT
from weft.hdl.receive.receive import Receive
from weft.hdl.table.translate import TranslateRequest, Translation
from weft.model.functional.parse import parse
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import beats, receive
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.receive.frames import IP, MAC, PEER_IP, PEER_MAC, roce
from weft.tb.test.rounds import rounds

PARAMS = preset("test").with_(rx_buffer_beats=256)
FRAMES = 300
TRANSLATE_CYCLES, WINDOW_CYCLES = 9, 8
UNKNOWN_QP, ERR_QP = 7, 8
PAGE = 4096
INTERVAL_NS, FIRST_NS = 1_500, 1 << 16    # of reports of marks; time at the start
PAGES, SCATTER = 1 << 52, 0x9_E377_9B97_F4A7     # the stand-in scatters pages over all physical addresses
REFUSAL = {Verdict.STALE: Reason.STALE_PSN, Verdict.DUPLICATE: Reason.DUPLICATE, Verdict.FAR: Reason.FAR_PSN}


ASKED_FOR = {*wire.DATA_OPCODES, *wire.DRIVER_OPCODES, wire.Opcode.PROBE}
HOST_QPN = 0xABCD00
HOST_WORD = int.from_bytes(HOST_QPNS.pack(first=HOST_QPN, log2=4, ranged=1, qp1=1), "little")


def number(index):
    """Return the QPN of the current incarnation of a QP."""
    return make_qpn(index, index * 0x17131, PARAMS.qpn_width)


def generation_of(index):
    """Return the generation as in reports and in the window."""
    return split_qpn(number(index), PARAMS.qpn_width)[1] % (1 << GENERATION_BITS)


def translated(key, va, length, qpn):
    """Return reason and segments; keys 1 to 4 are rejected for different reasons."""
    index, _ = split_qpn(qpn, PARAMS.qpn_width)
    if index == UNKNOWN_QP:
        return Reason.UNKNOWN_QP, []
    if qpn != number(index):
        return Reason.STALE_GENERATION, []
    if index == ERR_QP:
        return Reason.UNKNOWN_QP, []
    reasons = {1: Reason.BAD_KEY, 2: Reason.OUT_OF_RANGE, 3: Reason.NO_PERMISSION, 4: Reason.WRONG_PD}
    if length and key in reasons:
        return reasons[key], []
    head = min(length, PAGE - va % PAGE)
    pieces = [(va, head), (va + head, length - head)]
    return Reason.OK, [(address // PAGE * SCATTER % PAGES * PAGE + address % PAGE, size)
                       for address, size in pieces if size]


def judgement(rng, request):
    """Return the verdict of the stand-in for the window."""
    if rng.random() < 0.1:
        verdict = Verdict.FAR
    elif request.probe:
        verdict = Verdict.PROBE
    elif request.retransmission:
        verdict = rng.choice([Verdict.MATCH] * 4 + [Verdict.UNMATCHED, Verdict.STALE])
    else:
        verdict = rng.choice([Verdict.ACCEPT] * 4 + [Verdict.DUPLICATE, Verdict.STALE, Verdict.LATE])
    return {"verdict": verdict, "psn": rng.getrandbits(8) << 24 | request.psn, "base": rng.getrandbits(32),
            "holes": rng.getrandbits(HOLES_BITS), "progress": int(rng.random() < 0.3)}


def reports_drop(report):
    """Return True if a report is about a dropped packet."""
    return report.kind is ReportKind.ERROR or (report.kind is ReportKind.PROBE and report.reason is not Reason.OK)


class ReceiveBench:
    """The card around the receive subsystem."""

    def __init__(self, dut, rng, *, pause=0.0, accept_all=False, stopped=0.0):
        self.dut, self.rng, self.accept_all, self.stopped = dut, rng, accept_all, stopped
        self.source = StreamSource(dut, "i", dut.clk, rng=rng)
        sink = lambda name: StreamSink(dut, name, dut.clk, pause=pause, rng=rng)  # noqa: E731
        self.request, self.data, self.raw_info, self.raw = map(sink, ("o_request", "o_data", "o_raw_info", "o_raw"))
        self.report, self.translate, self.judge = map(sink, ("o_report", "o_translate", "o_check"))
        self.translation = StreamSource(dut, "i_translate", dut.clk, rng=rng)
        self.judged = StreamSource(dut, "i_verdict", dut.clk, rng=rng)
        self.needs, self.requests, self.judgements = [], [], []
        self.counts, self.refused, self.tickets = Counter(), ([], []), []
        self.cycle, self.steps = 0, []      # steps: time at each decision on a mark
        self.looks = []     # (index, state) of the QP when its packet was about to be placed
        self.drops, self.unread, self.reading = [], 0, 0.2   # dropped packets reported between two reads of the driver
        for task in (self._watch(), self._translate(), self._window(), self._table(), self._ring()):
            cocotb.start_soon(task)

    def send(self, frame):
        for value in beats(frame):
            self.source.send_nowait(value)

    async def _watch(self):
        dut = self.dut
        names = [name for name in dir(dut) if name.startswith("count_")]
        last, times = int(dut.placed_ticket.value), deque([0] * 2, 2)
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            if int(dut.count_rx_marked.value):
                self.steps.append(times[0] // MARK_STEP_NS)
            times.append(FIRST_NS + 4 * self.cycle)
            dut.time_ns.value = times[1]
            for name in names:
                self.counts[name] += int(getattr(dut, name).value)
            for k, reasons in enumerate(self.refused):
                if int(getattr(dut, f"drop__{k}__stb").value):
                    reasons.append(Reason(int(getattr(dut, f"drop__{k}__reason").value)))
            assert not int(dut.o_request__valid.value) or not int(dut.o_raw_info__valid.value), \
                "a frame is offered before the requests of earlier packets are taken"
            ticket = int(dut.placed_ticket.value)
            if ticket != last:
                assert ticket == (last + 1) % 256
                self.tickets.append((self.data.received, self.raw.received))
                last = ticket

    async def _ring(self):
        """Serve the report ring with a driver that sometimes reads all reports.

        After that, a QP that was reported before may be reported again.
        """
        self.drops.append([])
        while True:
            await RisingEdge(self.dut.clk)
            report = Report.from_bits(int(self.dut.o_report__payload.value))
            taken = int(self.dut.o_report__valid.value) and int(self.dut.o_report__ready.value)
            entry = REPORT_EVENT.unpack(report.entry.to_bytes(64, "little"))
            if refusal := int(taken and reports_drop(entry)):
                self.drops[-1].append(entry.qpn)
                self.unread = 1
            elif self.unread and self.rng.random() < self.reading:
                self.unread = 0
                self.drops.append([])
            self.dut.drop_reports__written.value, self.dut.drop_reports__unread.value = refusal, self.unread

    async def _table(self):
        """Serve the QP table; sometimes a QP has changed to ERR since its packet was checked."""
        shape = qp_state(PARAMS)
        while True:
            await RisingEdge(self.dut.clk)
            if int(self.dut.qp_read__en.value):
                state = QpState.ERR if self.rng.random() < self.stopped else QpState.RTS
                self.looks.append((int(self.dut.qp_read__index.value), state))
                self.dut.qp_read__entry.value = shape.const({"state": state}).as_bits()

    async def _delayed(self, sink, answer, source, cycles):
        due = deque()
        while True:
            await RisingEdge(self.dut.clk)
            while (value := sink.recv_nowait()) is not None:
                due.append((self.cycle + cycles - 2, answer(value)))
            while due and due[0][0] <= self.cycle:
                source.send_nowait(due.popleft()[1])

    async def _translate(self):
        def answer(value):
            request = TranslateRequest.from_bits(value)
            assert not request.qp_need
            self.needs.append(request.need)
            reason, segments = translated(request.key, request.va, request.length, request.qpn)
            values = {"reason": reason}
            index, _ = split_qpn(request.qpn, PARAMS.qpn_width)
            if index != UNKNOWN_QP:
                state = QpState.ERR if index == ERR_QP else QpState.RTS
                values |= {"qp_state": state, "qp_known": 1, "qp_generation": generation_of(index),
                           "qp_peer_ip": PEER_IP, "qp_psn_guard": index}
            for k, (address, length) in enumerate(segments):
                values[f"segment{k}"] = {"address": address, "length": length}
            return Translation.const(values).as_value().value
        await self._delayed(self.translate, answer, self.translation, TRANSLATE_CYCLES)

    async def _window(self):
        def answer(value):
            request = WindowRequest.from_bits(value)
            verdict = judgement(self.rng, request)
            if self.accept_all:
                verdict |= {"verdict": Verdict.ACCEPT, "progress": 0}
            self.requests.append(request)
            self.judgements.append(verdict)
            return WindowVerdict.const(verdict).as_value().value
        await self._delayed(self.judge, answer, self.judged, WINDOW_CYCLES)


async def start(dut, **options):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    dut.enable.value = dut.space.value = 1
    dut.network__mac.value, dut.network__ip.value = MAC, IP
    dut.registers__host_qpns.value, dut.registers__cnp_interval_ns.value = HOST_WORD, INTERVAL_NS
    return rng, ReceiveBench(dut, rng, **options)


def random_frame(rng):
    if rng.random() < 0.15:
        return wire.ETH.pack(dst=MAC, src=PEER_MAC, ethertype=0x0806) + rng.randbytes(rng.choice([46, 200]))
    if rng.random() < 0.1:
        return roce(rng.getrandbits(8), dest_qp=rng.choice([1, HOST_QPN + rng.getrandbits(4)]),
                    payload=rng.randbytes(rng.choice([4, 1024])), src_ip=unknown_peer(rng))
    others = [*[wire.Opcode.PROBE] * 4, wire.Opcode.ACKNOWLEDGE, wire.Opcode.LOSS_REPORT, 0x77]
    opcode = rng.choice(sorted(wire.DATA_OPCODES) * 3 + others)
    qpn = number(rng.choice([1, 2, 3, 1, 2, 3, UNKNOWN_QP, ERR_QP, ERR_QP]))
    if rng.random() < 0.15:      # of an earlier or later incarnation
        qpn ^= 1 << rng.randrange(PARAMS.qpn_width, wire.QPN_BITS)
    payload = b""
    if opcode in wire.DATA_OPCODES or opcode == wire.Opcode.LOSS_REPORT:
        payload = rng.randbytes(rng.choice([0, 1, rng.randrange(300), 256, 1024]))
    wrong = {"dma_length": len(payload) + 9} if rng.random() < 0.15 else {}
    va = rng.choice([rng.randrange(1 << 39), PAGE * rng.randrange(1, 1 << 20) - rng.randrange(1, 300)])
    spoilt = rng.random() < 0.1
    frame = roce(opcode, payload=payload, psn=rng.getrandbits(24), dest_qp=qpn, ack_req=rng.getrandbits(1), va=va,
                rkey=rng.choice([1, 2, 3, 4] + [99] * 8), rsn=rng.getrandbits(24), imm=rng.getrandbits(32),
                src_ip=unknown_peer(rng) if rng.random() < (0.5 if wrong else 0.2) else PEER_IP,
                tos=rng.choice([0, 1, 2, 3, 3, 3]), **wrong)
    return frame[:-1] + bytes([frame[-1] ^ 1 << rng.randrange(8)]) if spoilt else frame


def unknown_peer(rng):
    """Return an address that is not the peer's, often a similar one."""
    return PEER_IP ^ rng.choice([1 << rng.randrange(32), rng.randrange(1, 1 << 32), PEER_IP])


class Expected:
    """Expected outputs, computed from the frames and the window's verdicts."""

    def __init__(self, frames, needs, looks, requests, judgements, steps):
        self.requests, self.data, self.raw, self.reports, self.refused = [], [], [], [], ([], [])
        self.progress = []      # beats of data and raw frames up to each ticket
        self.tellable = 0       # reports of dropped packets: some may be coalesced
        self.counts, self.cases = Counter(), Counter()
        self.steps, self.marked, self.marked_at = iter(steps), Counter(), {}    # by QP
        answers, self.needs, self.looks = zip(requests, judgements, strict=True), iter(needs), iter(looks)
        beats_out, ticket = [0, 0], 0
        for frame in frames:
            header, payload = parse(frame, mac=MAC, ip=IP, host_qpns=HOST_WORD)
            self.counts["count_rx_frames"] += 1
            if header.kind == "REFUSED" and not header.opcode:
                self.refused[0].append(header.reason)
                if wire.BTH.unpack(frame[wire.BTH_OFFSET:]).opcode in ASKED_FOR:
                    self.cases["requested without effect"] += 1
                    next(self.needs)
                continue
            self._packet(header, payload, ticket % 256, answers, beats_out)
            self.progress.append(tuple(beats_out))
            ticket += 1

    def _raw(self, header, payload, beats_out):
        self.raw.append((len(payload), header.roce, header.host, payload))
        beats_out[1] += -(-len(payload) // 64)

    def _packet(self, header, payload, ticket, answers, beats_out):
        beat_count = -(-len(payload) // 64)
        looked_at, state = next(self.looks)
        if header.kind == "RAW" and not header.roce:
            self.cases["for software on the host"] += header.host
            self._raw(header, payload, beats_out)
            return
        length = header.dma_length if header.kind == "DATA" else 0
        reason, segments = translated(header.rkey, header.va, length, header.dest_qp)
        index, _ = split_qpn(header.dest_qp, PARAMS.qpn_width)
        assert looked_at == index
        data = header.kind in ("DATA", "REFUSED")
        assert next(self.needs) == (AccessFlag.REMOTE_WRITE if data else 0)
        if reason not in (Reason.UNKNOWN_QP, Reason.STALE_GENERATION):
            if header.src_ip != PEER_IP:
                reason = Reason.WRONG_PEER
            elif header.kind == "REFUSED":
                reason = header.reason
        if header.kind == "RAW" and reason == Reason.OK:
            self.cases["control frame", header.opcode] += 1
            self._raw(header, payload, beats_out)
            return
        verdict = {"psn": header.psn, "base": 0, "holes": 0, "progress": 0, "verdict": None}
        if reason == Reason.OK:
            request, verdict = next(answers)
            asked = {"qpn": index, "generation": generation_of(index), "psn": header.psn,
                     "rsn": header.rsn, "retransmission": header.retransmission, "probe": header.kind == "PROBE",
                     "ack_req": header.ack_req, "psn_guard": index, "ticket": ticket}
            assert {name: getattr(request, name) for name in asked} == asked
            reason = REFUSAL.get(verdict["verdict"], Reason.OK)
        self.cases[header.kind, verdict["verdict"], reason] += 1
        if reason != Reason.OK:
            self.refused[1].append(reason)
        elif header.kind == "DATA":
            self.counts["count_rx_packets"] += 1
            self.counts["count_rx_retransmissions"] += verdict["verdict"] in (Verdict.MATCH, Verdict.UNMATCHED)
            self.counts["count_rx_unmatched"] += verdict["verdict"] == Verdict.UNMATCHED
            self.counts["count_rx_late_originals"] += verdict["verdict"] == Verdict.LATE
            self.counts["count_rx_marked"] += header.ce
            if payload and state == QpState.ERR:
                self.cases["stopped in the last cycle"] += 1
            elif payload:
                self.counts["count_rx_bytes"] += len(payload)
                self.requests += [(*s, s is segments[-1]) for s in segments]
                self.data.append(payload)
                beats_out[0] += beat_count
        kinds = []
        if index == ERR_QP and reason == Reason.UNKNOWN_QP and header.kind == "PROBE" and header.src_ip == PEER_IP:
            kinds.append(ReportKind.PROBE)
            self.cases["probe of a QP in ERR"] += 1
        if header.ack_req and verdict["verdict"] in (Verdict.ACCEPT, Verdict.MATCH, Verdict.UNMATCHED):
            kinds.append(ReportKind.MESSAGE_END)
        if verdict["verdict"] == Verdict.PROBE:
            kinds.append(ReportKind.PROBE)
        if verdict["verdict"] is None and Reason.BAD_KEY <= reason <= Reason.LENGTH_MISMATCH:
            kinds.append(ReportKind.ERROR)
        if verdict["verdict"] == Verdict.UNMATCHED:
            kinds.append(ReportKind.UNMATCHED)
        elif verdict["progress"]:
            kinds.append(ReportKind.PROGRESS)
        if header.kind == "DATA" and header.ce and reason == Reason.OK:
            self._mark(index, kinds)
        refusals = {ReportKind.ERROR} if reason != Reason.UNKNOWN_QP else {ReportKind.PROBE}
        for kind in kinds:
            self.tellable += kind in refusals
            entry = REPORT_EVENT.pack(
                kind=kind, has_imm=header.has_imm, retransmission=header.retransmission, reason=reason,
                opcode=header.opcode, qpn=index, generation=generation_of(index), psn=verdict["psn"],
                base=verdict["base"], holes=verdict["holes"], va=header.va, key=header.rkey, length=header.dma_length,
                imm=header.imm, rsn=header.rsn, src_ip=header.src_ip,
                marked=self.marked[index] if kind is ReportKind.MARKED else 0)
            self.reports.append((int.from_bytes(entry, "little"), ticket))


    def _mark(self, index, kinds):
        """Count a mark; report it when the interval is over and the packet has none of two other reports."""
        step = next(self.steps)
        self.marked[index] += 1
        if ReportKind.UNMATCHED in kinds or ReportKind.PROGRESS in kinds:
            self.cases["mark beside another report"] += 1
        elif step - self.marked_at.get(index, -1 << 20) <= -(-INTERVAL_NS // MARK_STEP_NS):
            self.cases["mark within the interval"] += 1
        else:
            self.marked_at[index] = step
            self.cases["mark after a message end"] += ReportKind.MESSAGE_END in kinds
            kinds.append(ReportKind.MARKED)


def check_reports(bench, reports, expected):
    """Check that reports are complete and in order.

    Of reports about dropped packets there is one for each QP between two reads of the driver.
    """
    left, coalesced = iter(expected.reports), 0
    for report in reports:
        for wanted in left:
            if wanted == report:
                break
            assert reports_drop(REPORT_EVENT.unpack(wanted[0].to_bytes(64, "little"))), "a report is missing"
            coalesced += 1
        else:
            raise AssertionError("an unexpected report")
    coalesced += len(list(left))
    assert bench.counts["count_reports_coalesced"] == coalesced
    for drops in bench.drops:
        assert len(set(drops)) == len(drops), "one QP was reported to the driver twice"
    assert sum(map(len, bench.drops)) == expected.tellable - coalesced
    expected.cases["coalesced"] = coalesced


async def settle(bench):
    """Wait until everything is placed."""
    await bench.source.idle()
    quiet = 0
    while quiet < 100:
        before = (len(bench.tickets), bench.counts["count_rx_frames"], bench.report.received)
        await ClockCycles(bench.dut.clk, 10)
        quiet = quiet + 10 if before == (len(bench.tickets), bench.counts["count_rx_frames"],
                                         bench.report.received) else 0


async def settled(bench, frames):
    """Wait until everything is placed; return the expected outputs."""
    await settle(bench)
    return Expected(frames, bench.needs, bench.looks, bench.requests, bench.judgements, bench.steps)


async def compare(bench, frames):
    """Compare the outputs with the expected ones; return the latter."""
    expected = await settled(bench, frames)
    requests = [DmaRequest.from_bits(await bench.request.recv()) for _ in range(len(bench.request))]
    assert [(r.address, r.length, bool(r.last)) for r in requests] == expected.requests
    assert [(await receive(bench.data))[0] for _ in expected.data] == expected.data
    infos = [RawFrame.from_bits(await bench.raw_info.recv()) for _ in range(len(bench.raw_info))]
    assert [(i.length, i.roce, i.host) for i in infos] == [r[:3] for r in expected.raw]
    assert [(await receive(bench.raw))[0] for _ in expected.raw] == [r[3] for r in expected.raw]
    assert not len(bench.data) and not len(bench.raw)
    reports = [Report.from_bits(await bench.report.recv()) for _ in range(len(bench.report))]
    check_reports(bench, [(r.entry, r.ticket) for r in reports], expected)
    assert bench.refused[0] == expected.refused[0] and bench.refused[1] == expected.refused[1]
    for name, count in expected.counts.items():
        assert bench.counts[name] == count, name
    assert len(bench.tickets) == len(expected.progress)
    for got, needed in zip(bench.tickets, expected.progress, strict=True):
        assert got[0] >= needed[0] and got[1] >= needed[1], "a ticket was placed before its payload"
    return expected


WANTED = (
    "requested without effect", "probe of a QP in ERR", "stopped in the last cycle", "for software on the host",
    "page crossed", "mark beside another report", "mark within the interval", "mark after a message end",
    *(("control frame", int(opcode)) for opcode in (wire.Opcode.ACKNOWLEDGE, wire.Opcode.LOSS_REPORT)),
    *(("verdict", verdict) for verdict in Verdict),
    *(("refused", reason) for reason in (Reason.UNKNOWN_QP, Reason.BAD_KEY, Reason.OUT_OF_RANGE,
                                         Reason.STALE_GENERATION, Reason.WRONG_PEER)),
    *((kind, Reason.WRONG_PEER) for kind in ("DATA", "PROBE", "RAW", "REFUSED")),
    *((kind, Reason.STALE_GENERATION) for kind in ("DATA", "PROBE", "RAW")),
    *(("report", kind) for kind in (ReportKind.MESSAGE_END, ReportKind.PROGRESS, ReportKind.PROBE, ReportKind.ERROR,
                                    ReportKind.UNMATCHED, ReportKind.MARKED)))


def occurred(expected):
    """Return the number of occurrences of each case, as a Counter."""
    seen = Counter(("report", entry >> 1 & 31) for entry, _ in expected.reports)
    seen["page crossed"] = sum(not last for _, _, last in expected.requests)
    for case, times in expected.cases.items():
        if len(case) == 3:
            kind, verdict, reason = case
            for name in (("refused", reason), (kind, reason)) if verdict is None else (("verdict", verdict),):
                seen[name] += times
        else:
            seen[case] += times
    return seen


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def random_packets(dut):
    """Send packets of every kind, valid and invalid, until every case has occurred."""
    rng, bench = await start(dut, pause=0.1, stopped=0.2)
    frames, seen = [], Counter()
    for turn in rounds(seen, [*WANTED, "coalesced"], most=37):
        for _ in range(FRAMES // 4 if turn else FRAMES):
            frames.append(random_frame(rng))
            bench.send(frames[-1])
            # Never so fast that the buffer fills: at most ten frames are outstanding.
            while (bench.source._queue
                   or bench.counts["count_rx_frames"] > len(bench.tickets) + len(bench.refused[0]) + 10):
                await RisingEdge(dut.clk)
                dut.space.value = int(rng.random() < 0.7)
        dut.space.value = 1
        seen |= occurred(await settled(bench, frames))       # of all frames until now
        seen["coalesced"] = bench.counts["count_reports_coalesced"]
    expected = await compare(bench, frames)
    cocotb.log.info("%d frames; cases: %s", len(frames), dict(expected.cases))
    assert expected.cases["coalesced"]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def unknown_peer_moves_no_window(dut):
    """Packets without payload need no key; from an address that is not the peer's they do not reach the window."""
    rng, bench = await start(dut, accept_all=True)
    frames = [roce(opcode, dest_qp=number(1), psn=1 << 22, ack_req=1, rkey=0, src_ip=unknown_peer(rng))
              for opcode in [*sorted(wire.DATA_OPCODES), wire.Opcode.PROBE] * 4]
    assert len(frames[0]) == 74, "the shortest of all"
    for frame in frames:
        bench.send(frame)
    await compare(bench, frames)
    assert not bench.requests and not bench.report.received
    assert bench.refused[1] == [Reason.WRONG_PEER] * len(frames)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def dropped_packets_are_reported_once(dut):
    """One report of each QP until the driver has read it, none while half of the ring is in use; no packet stalls."""
    rng, bench = await start(dut, accept_all=True)
    bench.reading = 0
    honest = roce(wire.Opcode.WRITE_ONLY, payload=bytes(64), dest_qp=number(1), rkey=99)
    bad = [roce(wire.Opcode.WRITE_ONLY, payload=bytes(64), dest_qp=number(index), rkey=1) for index in (1, 2, 3)]
    bad.append(roce(wire.Opcode.PROBE, dest_qp=number(ERR_QP)))
    sent = []

    async def attack(frames):
        for frame in [frame for one in frames for frame in (one, honest)] * 8:
            bench.send(frame)
            sent.append(frame)
        await bench.source.idle()
        while len(bench.tickets) < len(sent):
            await RisingEdge(dut.clk)
        await ClockCycles(dut.clk, 30 + PARAMS.qps)

    await attack(bad)
    assert sorted(bench.drops[-1]) == [1, 2, 3, ERR_QP]
    await attack(bad)
    assert len(bench.drops[-1]) == len(bad), "reported again though the driver has not read it"
    bench.reading = 1
    await ClockCycles(dut.clk, 30 + PARAMS.qps)
    bench.reading = 0
    await attack(bad[1:])
    assert sorted(bench.drops[-1]) == [2, 3, ERR_QP]
    bench.reading, dut.drop_reports__half.value = 1, 1
    await ClockCycles(dut.clk, 30 + PARAMS.qps)
    await attack(bad)
    assert not bench.drops[-1] and bench.report.received == len(bad) + 3
    dut.drop_reports__half.value = 0
    await compare(bench, sent)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def full_rate(dut):
    """Payload leaves as fast as frames arrive: 64 to 4096 bytes per packet, also across pages, marked or not."""
    rng, bench = await start(dut, accept_all=True)
    dut.registers__cnp_interval_ns.value = 0
    for size, count, tos in ((4096, 4, 0), (1024, 15, 0), (256, 30, 0), (64, 60, 0), (64, 60, 3), (256, 30, 3)):
        for sink in (bench.request, bench.data):
            sink._queue.clear()
        start_cycle, start_data = bench.cycle, bench.data.received
        frame = roce(wire.Opcode.WRITE_ONLY, payload=rng.randbytes(size), dest_qp=number(1), va=PAGE - 30, rkey=99,
                     tos=tos)
        for _ in range(count):
            bench.send(frame)
        total = count * len(beats(frame))
        while bench.data.received == start_data:
            await RisingEdge(dut.clk)
        latency, first = bench.cycle - start_cycle - len(beats(frame)), bench.cycle
        while bench.data.received < start_data + count * -(-size // 64):
            await RisingEdge(dut.clk)
        cycles = bench.cycle - first + 1
        cocotb.log.info("%d bytes: first beat %d cycles after the frame, %d frames of %d beats in %d cycles", size,
                        latency, count, len(beats(frame)), cycles)
        assert latency <= 45
        assert cycles <= total + 4
    assert not bench.refused[0] and bench.counts["count_rx_marked"] == 90
    assert bench.report.received > 2, "reports of marks within this time"


@cocotb.test(timeout_time=100, timeout_unit="us")
async def no_space(dut):
    """Without space for reports no packet is sent to the window; RAW frames before the first packet pass."""
    rng, bench = await start(dut)
    dut.space.value = 0
    raw = bytes([1]) * 60
    frames = [raw, raw, roce(wire.Opcode.WRITE_ONLY, payload=bytes(100), dest_qp=number(1), rkey=99, ack_req=1), raw]
    for frame in frames:
        bench.send(frame)
    while len(bench.tickets) < 2:
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 50)
    assert len(bench.tickets) == 2 and not bench.judge.received
    dut.space.value = 1
    await compare(bench, frames)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def drain(dut):
    """A drain waits for every earlier packet and for no later one."""
    rng, bench = await start(dut, accept_all=True)
    packet = roce(wire.Opcode.WRITE_ONLY, payload=bytes(1024), dest_qp=number(1), rkey=99)
    for held in (0, 1):
        bench.data.pause = 1.0
        await ClockCycles(dut.clk, 2)
        before, frames = len(bench.tickets), bench.counts["count_rx_frames"]
        for _ in range(3):
            bench.send(packet)
        while bench.counts["count_rx_frames"] < frames + 3:
            await RisingEdge(dut.clk)
        dut.drain_request.value = 1
        await RisingEdge(dut.clk)
        dut.drain_request.value = held
        for _ in range(8):
            bench.send(packet)
        for _ in range(60):
            await RisingEdge(dut.clk)
            assert not int(dut.drain_done.value)
        bench.data.pause = 0.0
        while not int(dut.drain_done.value):
            await RisingEdge(dut.clk)
        assert before + 3 <= len(bench.tickets) <= before + 5
        dut.drain_request.value = 0
        while len(bench.tickets) < before + 11:
            await RisingEdge(dut.clk)
        assert not int(dut.drain_done.value)
    # An incomplete packet counts, and is dropped if its end does not come; an incomplete raw frame does not count.
    raw = wire.ETH.pack(dst=MAC, src=PEER_MAC, ethertype=0x0806) + bytes(200)
    for frame, ends, most in ((packet, True, 100), (packet, False, ARRIVAL_TIMEOUT + 60), (raw, False, 10)):
        while int(dut.drain_done.value):
            await RisingEdge(dut.clk)
        before, refused = len(bench.tickets), len(bench.refused[0])
        for value in beats(frame)[:3]:
            bench.source.send_nowait(value)
        await bench.source.idle()
        dut.drain_request.value = 1
        for cycles in range(most):
            await RisingEdge(dut.clk)
            dut.drain_request.value = 0
            if int(dut.drain_done.value):
                break
            if ends and cycles == 20:
                for value in beats(frame)[3:]:
                    bench.source.send_nowait(value)
        assert int(dut.drain_done.value), "it waits for ever"
        assert len(bench.tickets) == before + ends
        if not ends:
            assert most == 10 or cycles >= ARRIVAL_TIMEOUT
            for value in beats(frame)[3:]:
                bench.source.send_nowait(value)
            await settle(bench)
            assert len(bench.refused[0]) == refused + (frame is packet)
    # With no packet in progress it is done at once.
    while int(dut.drain_done.value):
        await RisingEdge(dut.clk)
    dut.drain_request.value = 1
    await RisingEdge(dut.clk)
    dut.drain_request.value = 0
    for _ in range(4):
        await RisingEdge(dut.clk)
        if int(dut.drain_done.value):
            return
    raise AssertionError("an idle receive path is not drained at once")


@pytest.mark.parametrize("sim", SIMULATORS)
def test_packets_are_checked_and_placed_in_order(sim):
    simulate(Receive(PARAMS), name="receive_receive", cases=__file__, sim=sim)
