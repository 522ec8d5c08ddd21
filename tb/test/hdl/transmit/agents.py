"""Environment of the transmit subsystem in its tests: descriptors and their frames, translation, memory."""

import gc
import random
import re
import warnings
from types import SimpleNamespace

import cocotb

from weft.hdl.contract import abi, wire
from weft.hdl.contract.abi import PAGE_4K, Reason, WorkOpcode
from weft.hdl.part.layouts import DmaRequest
from weft.hdl.table.translate import TranslateRequest, Translation
from weft.tb.sim.flow.simulate import elaborate, simulate
from weft.tb.sim.stream.payload import beats
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.reserved import junk

BAD_KEY, POISON_KEY = 0xBAD0_0000, 0xDEAD_0000  # rejected; read with an error
NO_QP = 13                                      # a QPN that is not ready to send
QP_GENERATION = 0x5A


def run(component, *, name, cases, sim):
    """Run :func:`weft.tb.sim.flow.simulate.simulate` with every combinational process evaluated once at time zero.

    Icarus omits those whose inputs keep their initial values: their outputs stay undefined.
    """
    text = elaborate(component, "top")
    if sim == "icarus":
        text = re.sub(r"^( *reg (\\\S*verilog_backend\S*) *= 0;)$", r"\1\n  initial #0 \2 = 1;", text, flags=re.M)
    simulate(verilog=text, top="top", name=name, cases=cases, sim=sim)


def refusal(build):
    """Return the message of the ValueError that ``build`` raises, without a warning about the unused component."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            build()
        except ValueError as error:
            message = str(error)
        else:
            raise AssertionError("nothing was refused")
        gc.collect()
    return message


def byte_at(address):
    """Return a byte of host memory: it differs from those of neighbouring addresses, in any page."""
    return (address * 0x9E37_79B1 >> 13) & 0xFF


def memory(address, length):
    return bytes(byte_at(a) for a in range(address, address + length))


def physical(key, va):
    """Return the physical address of a virtual one: pages are scattered over all physical addresses."""
    page = (va // PAGE_4K * 0x1_0001_0001 ^ key * 0x9_E377_9B97_F4A7) & (1 << 52) - 1
    return page * PAGE_4K + va % PAGE_4K


def gather(key, va, length):
    """Return the bytes of a read through the page table."""
    data = b""
    while length:
        part = min(length, PAGE_4K - va % PAGE_4K)
        data += memory(physical(key, va), part)
        va, length = va + part, length - part
    return data


def random_work(rng, *, qps, retransmit=None, length_max=6000, **changes):
    """Return the fields of a valid WORK descriptor."""
    pmtu = rng.choice(list(wire.PMTUS))
    length = rng.choice([0, 1, wire.PMTUS[pmtu], rng.randint(0, 300), rng.randint(0, length_max)])
    qpn = rng.randrange(qps)
    return {
        "opcode": rng.choice(abi.WRITES), "ack_req": rng.getrandbits(1),
        "retransmit": rng.getrandbits(1) if retransmit is None else retransmit, "pmtu": pmtu,
        "sqpn": qpn if qpn != NO_QP else 0, "dqpn": rng.getrandbits(24),
        "local_va": rng.getrandbits(36) * PAGE_4K + rng.choice([rng.getrandbits(12), PAGE_4K - rng.randint(1, 200)]),
        "remote_va": rng.getrandbits(48), "lkey": rng.getrandbits(31),
        "rkey": rng.getrandbits(32), "length": length, "psn": rng.choice([rng.getrandbits(32), 0xFF_FFFE, 0xFFFF_FFFF]),
        "imm": rng.getrandbits(32), "rsn": rng.choice([rng.getrandbits(24), 0xFF_FFFF]),
        "dst_mac": rng.getrandbits(48), "sport": rng.getrandbits(16), "ect": rng.getrandbits(1),
        "dst_ip": rng.getrandbits(32)} | changes


def random_inline(rng, *, qps, **changes):
    """Return the same with inline data, as bytes ``payload``.

    With ``lost``, the entry before it is not its INLINE_DATA entry, but absent, or (``other``) that of another
    descriptor.
    """
    length = rng.choice([0, 1, abi.INLINE_HEAD_BYTES, abi.INLINE_HEAD_BYTES + 1, abi.INLINE_MAX,
                         rng.randint(0, abi.INLINE_MAX)])
    return random_work(rng, qps=qps) | {"length": length, "payload": rng.randbytes(length)} | changes


def entries_of(work, rng):
    """Return the ring entries of a descriptor; ignored bits are random."""
    fields, payload, lost = dict(work), work.get("payload"), work.get("lost")
    phase = rng.getrandbits(1)
    if payload is None:
        return [abi.WORK.pack(phase=phase, **fields, **junk(abi.WORK, rng))]
    for name in ("payload", "lost", "local_va", "lkey"):
        fields.pop(name, None)
    padded = payload + rng.randbytes(abi.INLINE_MAX - len(payload))
    head, rest = (int.from_bytes(part, "little")
                  for part in (padded[:abi.INLINE_HEAD_BYTES], padded[abi.INLINE_HEAD_BYTES:]))
    entry = abi.WORK_INLINE.pack(phase=phase, inline=1, data=head, **fields, **junk(abi.WORK_INLINE, rng))
    if len(payload) <= abi.INLINE_HEAD_BYTES or lost and lost != "other":
        return [entry]
    other = rng.choice([{"psn": work["psn"] ^ 1 << rng.randrange(32)}, {"sqpn": work["sqpn"] ^ 1 << rng.randrange(24)}])
    names = {"psn": work["psn"], "sqpn": work["sqpn"]} | (other if lost else {})
    return [abi.INLINE_DATA.pack(phase=phase, opcode=WorkOpcode.INLINE_DATA, data=rest, **names,
                                 **junk(abi.INLINE_DATA, rng)), entry]


def packets_of(work, *, qps):
    """Return the packets of a descriptor by brute force: each begins at a remote address that is a PMTU multiple."""
    w = SimpleNamespace(**{"payload": None} | work)
    if (w.opcode not in abi.WRITES or w.pmtu not in wire.PMTUS or w.sqpn >= qps
            or w.payload is not None and w.length > abi.INLINE_MAX):
        cuts, reason = [(0, 0)], Reason.BAD_DESCRIPTOR
    elif w.payload is not None:
        cuts, reason = [(0, w.length)], Reason.OK
    else:
        pmtu, reason = wire.PMTUS[w.pmtu], Reason.OK
        first = min(w.length, -w.remote_va % pmtu or pmtu)
        starts = [0, *range(first, w.length, pmtu)]
        cuts = list(zip(starts, [*starts[1:], w.length], strict=True))
        assert len(cuts) == wire.packet_count(w.remote_va, w.length, pmtu)
    packets = []
    for number, (begin, end) in enumerate(cuts):
        last = number == len(cuts) - 1
        has_imm = w.opcode == WorkOpcode.WRITE_IMM and last
        opcode = {(0, 0): wire.Opcode.WRITE_ONLY, (0, 1): wire.Opcode.WRITE_ONLY_IMM, (1, 0): wire.Opcode.RETX_WRITE,
                  (1, 1): wire.Opcode.RETX_WRITE_IMM}[int(w.retransmit), int(has_imm)]
        packets.append(SimpleNamespace(
            work=w, opcode=opcode, psn=(w.psn + number) & 0xFFFF_FFFF, rsn=(w.rsn + number) & 0xFF_FFFF,
            has_imm=int(has_imm), ack_req=int(w.ack_req and last), local_va=w.local_va + begin,
            remote_va=w.remote_va + begin, length=end - begin, last=int(last), reason=reason))
    return packets


def frame_of(packet, network):
    """Return the frame of a packet according to the contract; ``network`` is the (mac, ip) of the card."""
    w = packet.work
    extensions = wire.RETH.pack(va=packet.remote_va, rkey=w.rkey, dma_length=packet.length)
    if w.retransmit:
        extensions += wire.RSNH.pack(rsn=packet.rsn)
    if packet.has_imm:
        extensions += wire.IMMDT.pack(imm=w.imm)
    return wire.build_frame(
        opcode=packet.opcode, dst_mac=w.dst_mac, src_mac=network[0], src_ip=network[1], dst_ip=w.dst_ip, sport=w.sport,
        dest_qp=w.dqpn, psn=packet.psn, ack_req=packet.ack_req, extensions=extensions,
        tos=wire.ECT0 if w.ect else 0,
        payload=gather(w.lkey, packet.local_va, packet.length) if w.payload is None else w.payload)


def error_of(reason, packet):
    """Return the entry of the report about a packet that is not sent."""
    w = packet.work
    return abi.REPORT_EVENT.pack(
        kind=abi.ReportKind.TX_ERROR, reason=reason, opcode=packet.opcode, has_imm=packet.has_imm,
        retransmission=w.retransmit, qpn=w.sqpn, generation=QP_GENERATION,
        psn=packet.psn, va=packet.remote_va, key=w.rkey, length=packet.length, imm=w.imm, rsn=packet.rsn)


def outcome_of(works, *, qps, network):
    """Return frames and error reports of one ring's descriptors."""
    frames, reports = [], []
    for work in works:
        if work.get("lost"):
            continue
        refused = False
        for packet in packets_of(work, qps=qps):
            reason = packet.reason
            if reason == Reason.OK and work["sqpn"] == NO_QP:
                reason = Reason.UNKNOWN_QP
            elif reason == Reason.OK and packet.length and "payload" not in work and work["lkey"] == BAD_KEY:
                reason = Reason.BAD_KEY
            elif reason == Reason.OK and packet.length and "payload" not in work and work["lkey"] == POISON_KEY:
                reports.append(error_of(Reason.DMA_ERROR, packet))
                continue
            if reason != Reason.OK and not refused:
                reports.append(error_of(reason, packet))
            refused |= reason != Reason.OK
            if not refused:
                frames.append(frame_of(packet, network))
    return frames, reports


class Host:
    """Translation and memory at the subsystem's ports ``*_translate``, ``o_request`` and ``i_payload``.

    Attributes
    ----------
    ends, begins : dict
        Keys of MRs with a limited length, with the virtual addresses after their last byte and of their first one.
    translations : int
        Requests answered.
    """

    def __init__(self, dut, *, pause=0.0, rng=None):
        rng = rng or random.Random(0)
        self.crossings = self.reads = self.translations = 0
        self.ends, self.begins = {}, {}
        self.poisoned = set()
        self._questions = StreamSink(dut, "o_translate", dut.clk, pause=pause, rng=rng)
        self._answers = StreamSource(dut, "i_translate", dut.clk, pause=pause, rng=rng)
        self._requests = StreamSink(dut, "o_request", dut.clk, pause=pause, rng=rng)
        self.payload = StreamSource(dut, "i_payload", dut.clk, pause=pause, rng=rng)
        self._rng = rng
        cocotb.start_soon(self._translate())
        cocotb.start_soon(self._read())

    async def _translate(self):
        while True:
            ask = TranslateRequest.from_bits(await self._questions.recv())
            assert ask.need == 0 and ask.qp_need == 1, "a local read needs a QP that sends, and no right"
            self.translations += 1
            reason = Reason.OK
            if ask.qpn == NO_QP:
                reason = Reason.UNKNOWN_QP
            elif ask.length and ask.key == BAD_KEY:
                reason = Reason.BAD_KEY
            elif ask.length and (ask.va + ask.length > self.ends.get(ask.key, ask.va + ask.length)
                                 or ask.va < self.begins.get(ask.key, 0)):
                reason = Reason.OUT_OF_RANGE
            answer = {"reason": reason, "qp_known": 1, "qp_generation": QP_GENERATION, "qp_state": abi.QpState.RTS}
            if reason == Reason.OK and ask.length:
                first = min(ask.length, PAGE_4K - ask.va % PAGE_4K)
                answer["segment0"] = {"address": physical(ask.key, ask.va), "length": first}
                if first < ask.length:
                    answer["segment1"] = {"address": physical(ask.key, ask.va + first), "length": ask.length - first}
                    self.crossings += 1
                if ask.key == POISON_KEY:
                    self.poisoned.add(answer["segment0"]["address"])
            self._answers.send_nowait(Translation.const(answer).as_bits())

    async def _read(self):
        data, error = b"", 0
        while True:
            request = DmaRequest.from_bits(await self._requests.recv())
            data += memory(request.address, request.length)
            error |= request.address in self.poisoned
            self.reads += 1
            if request.last:
                for beat in beats(data, error=error):
                    empty = beat >> 512 & 63
                    junk = self._rng.getrandbits(8 * empty) << 8 * (64 - empty)  # unused bytes are random
                    self.payload.send_nowait(beat | junk)
                data, error = b"", 0
