"""Tests of the receive parser against its functional model."""

import gc
import os
import random
from collections import Counter
from itertools import zip_longest

import cocotb
import pytest
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from weft.hdl.contract import wire
from weft.hdl.contract.abi import HOST_QPNS, AccessFlag, Reason, is_host_qpn
from weft.hdl.contract.params import (
    PAUSE_FROM,
    PAUSE_UNTIL,
    SHED_FROM,
    SHED_FROM_EIGHTHS,
    SHED_UNTIL,
    SHED_UNTIL_EIGHTHS,
    preset,
)
from weft.hdl.part.layouts import BEAT_BYTES, LENGTH_WIDTH, RxHeader, RxKind
from weft.hdl.receive.early_translate import DEPTH
from weft.hdl.receive.parse import HEADER_DEPTH, RAW_MAX, Parse
from weft.hdl.table.translate import TranslateRequest
from weft.model.functional.parse import KINDS, parse
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.hostile.fuzzed_frames import edit, seal
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import beats, receive
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.receive.frames import IP, MAC, PEER_MAC, roce

PARAMS = preset("test").with_(rx_buffer_beats=256)
LATENCY = 8
UNDECIDED = 5                   # small packets whose translations are outstanding and whose headers are not queued yet
FAST = os.environ.get("WEFT_SIM") == "verilator"
FRAMES = 400 if FAST else 72
STEP = 1 if FAST else 5         # between tested lengths
CASES = 20
IPV4_AT = wire.ETH.size_bytes
UDP_AT = IPV4_AT + wire.IPV4.size_bytes
KNOWN = list(wire.EXTENSIONS)
HOST_FIRST, HOST_LOG2 = 0xC0_0000, 22        # a quarter of all QPNs
MAC_PADDING = wire.MIN_FRAME_BYTES - wire.RETH_OFFSET - wire.ICRC_BYTES      # of a packet of a BTH alone
BROADCAST = (1 << 48) - 1
# Bytes of the IPv4 header that the ICRC does not cover, but its checksum does: TOS, TTL, the checksum itself.
UNPROTECTED = [IPV4_AT + 1, IPV4_AT + 8, IPV4_AT + 10, IPV4_AT + 11]


class ParseBench:
    """The parser with a source of frames, sinks, and a list of its dropped packets."""

    def __init__(self, dut, rng, *, pause=0.0):
        self.dut = dut
        self.source = StreamSource(dut, "i", dut.clk, rng=rng)
        self.header = StreamSink(dut, "o_header", dut.clk, pause=pause, rng=rng)
        self.payload = StreamSink(dut, "o_payload", dut.clk, pause=pause, rng=rng)
        self.translate = StreamSink(dut, "o_translate", dut.clk, pause=pause, rng=rng)
        self.outcome = StreamSink(dut, "o_outcome", dut.clk, pause=pause, rng=rng)
        self.unasked = []           # headers of packets of QPs, not yet compared with their translation requests
        self.refused, self.frames, self.sent = [], 0, 0
        self.without_effect = 0            # translations requested for packets that were dropped
        self.asked_before = 0       # number of items of `outcome` that are compared
        self.to_host = Counter()    # (opcode, bytes) of frames for software on the host
        self.nic_takes = True       # the Simple NIC: a raw frame is done when its header is taken
        self.raws_done = 0          # raw frames that it has yet to acknowledge
        cocotb.start_soon(self._watch())

    async def _watch(self):
        while True:
            await RisingEdge(self.dut.clk)
            assert int(self.dut.i__ready.value)
            self.frames += int(self.dut.count_rx_frames.value)
            taken = int(self.dut.o_header__valid.value) and int(self.dut.o_header__ready.value)
            header = RxHeader.from_bits(int(self.dut.o_header__payload.value)) if taken and self.nic_takes else None
            self.raws_done += header is not None and header.kind == RxKind.RAW and not header.roce
            self.dut.raw_done.value = int(self.raws_done > 0)
            self.raws_done = max(0, self.raws_done - 1)
            if int(self.dut.drop__stb.value):
                self.refused.append(Reason(int(self.dut.drop__reason.value)))

    def send(self, frame, *, error=False):
        self.sent += 1
        for value in beats(frame, error=int(error)):
            self.source.send_nowait(value)

    async def settle(self):
        """Wait until every frame has an outcome."""
        await self.source.idle()
        while self.frames < self.sent:
            await RisingEdge(self.dut.clk)

    async def forget_asked(self):
        """Discard the translation requests so far."""
        while len(self.translate):
            await self.translate.recv()
        while len(self.outcome):
            await self.outcome.recv()
        self.asked_before = self.outcome.received

    async def check_asked(self):
        """Check that the translation of every passed packet was requested, in order.

        Returns the number of requests for packets that were dropped.
        """
        headers, without_effect = iter(self.unasked), 0
        for _ in range(self.outcome.received - self.asked_before):
            request = TranslateRequest.from_bits(await self.translate.recv())
            if not await self.outcome.recv():
                without_effect += 1
                continue
            header = next(headers)
            assert (request.qpn, request.key, request.va) == (header.dest_qp, header.rkey, header.va)
            data = header.kind in ("DATA", "REFUSED")
            assert request.need == (AccessFlag.REMOTE_WRITE if data else 0) and not request.qp_need
            assert request.length == (header.dma_length % (1 << LENGTH_WIDTH) if data else 0)
        assert not list(headers) and not len(self.translate), "a packet was not asked for"
        self.asked_before = self.outcome.received
        self.unasked.clear()
        return without_effect


async def start(dut, host_qpns=0, **options):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    dut.enable.value = 1
    dut.network__mac.value, dut.network__ip.value = MAC, IP
    dut.host_qpns.value = host_qpns
    await RisingEdge(dut.clk)
    return rng, ParseBench(dut, rng, **options)


def data_frame(rng, length, **fields):
    return roce(rng.choice(sorted(wire.DATA_OPCODES)), payload=rng.randbytes(length), psn=rng.getrandbits(24),
                dest_qp=rng.getrandbits(24), ack_req=rng.getrandbits(1), va=rng.getrandbits(64),
                rkey=rng.getrandbits(32), rsn=rng.getrandbits(24),
                imm=rng.getrandbits(32), src_ip=rng.getrandbits(32), **fields)


def word(**fields):
    """Return a value of ``host_qpns``."""
    return int.from_bytes(HOST_QPNS.pack(**fields), "little")


def host_frame(rng, opcode=None, length=None, padding=None):
    """Return a packet for a QPN of software on the host.

    The shortest ones are filled up to 60 bytes, or with ``padding``.
    """
    frame = roce(rng.getrandbits(8) if opcode is None else opcode, psn=rng.getrandbits(24),
                 dest_qp=rng.choice([1, HOST_FIRST + rng.getrandbits(HOST_LOG2)]), src_ip=rng.getrandbits(32),
                 payload=rng.randbytes(some_length(rng) if length is None else length))
    full = wire.MIN_FRAME_BYTES - len(frame) if padding is None else padding
    return frame + rng.randbytes(max(0, full))


def flip(frame, byte, bit):
    flipped = bytearray(frame)
    flipped[byte] ^= 1 << bit
    return bytes(flipped)


def some_length(rng):
    return rng.choice([0, 1, 2, 3, 4, rng.randrange(64), rng.randrange(160), rng.randrange(992, 1056),
                       rng.randrange(4097), 4096])


def random_frame(rng, case):
    """Return a frame of any kind, often with an error; one frame of every case covers most outcomes."""
    frame = data_frame(rng, some_length(rng))
    if case < 4:
        return frame
    if case == 4:
        return roce(rng.choice(KNOWN), psn=rng.getrandbits(24), rsn=rng.getrandbits(24))
    if case == 5:
        return roce(wire.Opcode.LOSS_REPORT, payload=rng.randbytes(64), psn=rng.getrandbits(24))
    if case == 6:
        return roce(rng.getrandbits(8), payload=rng.randbytes(rng.randrange(80)))
    if case == 7:
        return frame[:rng.randrange(1, len(frame))]
    if case == 8:
        return flip(frame, rng.randrange(len(frame)), rng.randrange(8))
    if case == 9:
        return frame + rng.randbytes(rng.randrange(1, 70))
    if case == 10:
        return seal(edit(frame, wire.IPV4, IPV4_AT, total_length=rng.randrange(1 << rng.choice([7, 16]))))
    if case == 11:
        return seal(edit(frame, wire.UDP, UDP_AT, length=rng.randrange(1 << 16)))
    if case == 12:
        real = len(frame) - wire.DATA_HEADER_BYTES
        length = rng.choice([0, 1, 4096, 4097, 4098, 4100, 1 << 16, 1 << 31, max(0, real - 4), max(0, real - 8)])
        return seal(edit(frame, wire.RETH, wire.RETH_OFFSET, dma_length=length))
    if case == 13:
        changes = rng.choice([{"pad_count": rng.randrange(4)}, {"version": 1}, {"pkey": 0x7FFF}, {"pkey": 0x1234}])
        return seal(edit(frame, wire.BTH, wire.BTH_OFFSET, **changes))
    if case == 14:
        changes = rng.choice([{"ihl": 6}, {"version": 6}, {"flags": 1}, {"fragment": 5}, {"protocol": 6},
                              {"dst": IP + 1}, {"checksum": rng.getrandbits(16)},
                              {"checksum": wire.IPV4.unpack(frame[IPV4_AT:]).checksum ^ 1 << rng.randrange(16)}])
        return seal(edit(frame, wire.IPV4, IPV4_AT, **changes))
    if case == 15:
        changes = rng.choice([{"dst": PEER_MAC}, {"dst": BROADCAST}, {"ethertype": 0x86DD}])
        return seal(edit(frame, wire.ETH, 0, **changes))
    if case in (16, 17):
        return host_frame(rng)
    header = wire.ETH.pack(dst=rng.choice([MAC, MAC, BROADCAST, 0x0100_5E00_0001, PEER_MAC]), src=PEER_MAC,
                           ethertype=wire.ETHERTYPE_ARP)
    return header + rng.randbytes(rng.choice([0, 28, 46, 50, 51, 1500]))


def seen_by_driver(header):
    """Return True if the parser passes a header on, and does not only count it."""
    return header.kind != "REFUSED" or header.opcode


def compare(value, expected):
    got = RxHeader.from_bits(value)
    assert KINDS[got.kind.value] == expected.kind
    names = vars(expected).keys() - {"kind"}
    if expected.kind == "RAW":
        names = {"roce", "host", "length", "reason"}
    for name in names:
        assert getattr(got, name) == getattr(expected, name), f"{expected}: {name} is {getattr(got, name):#x}"


@cocotb.test(timeout_time=400, timeout_unit="us")
async def host_range(dut):
    """QPNs of software: ranges of every size, at their edges, with and without QPN 1."""
    rng, bench = await start(dut)
    inside = 0
    for log2 in range(25):
        first = rng.getrandbits(24) >> log2 << log2
        dut.host_qpns.value = value = word(first=first, log2=log2, ranged=rng.random() < 0.8, qp1=rng.getrandbits(1))
        await ClockCycles(dut.clk, 2)
        edges = {1, first, first + (1 << log2) - 1, (first - 1) % (1 << 24), (first + (1 << log2)) % (1 << 24),
                 first ^ 1 << rng.randrange(24)}
        frames = [roce(4, dest_qp=qpn) for qpn in edges]
        inside += sum(is_host_qpn(value, qpn) for qpn in edges)
        bench.refused.clear()
        for frame in frames:
            bench.send(frame + bytes(MAC_PADDING))
        await expect(bench, [(frame, False) for frame in frames])
    assert bench.to_host == {(4, 58): inside} and inside > 25


async def expect(bench, frames):
    """Compare all outputs with those of the model for ``frames``; count the cases."""
    cases, refused = Counter(), []
    for frame, error in frames:
        header, payload = parse(frame, error=error, mac=MAC, ip=IP, host_qpns=int(bench.dut.host_qpns.value))
        cases[header.kind, header.reason] += 1
        if header.host:
            bench.to_host[header.opcode, header.length] += 1
        if not seen_by_driver(header):
            refused.append(header.reason)
            continue
        compare(await bench.header.recv(), header)
        if header.kind != "RAW" or header.roce:
            bench.unasked.append(header)
        if payload:
            assert await receive(bench.payload) == (payload, 0)
    await bench.settle()
    assert bench.refused == refused
    await ClockCycles(bench.dut.clk, 4)
    bench.without_effect += await bench.check_asked()
    assert not len(bench.header) and not len(bench.payload)
    return cases


@cocotb.test(timeout_time=400, timeout_unit="us")
async def random_frames(dut):
    rng, bench = await start(dut, word(first=HOST_FIRST, log2=HOST_LOG2, ranged=1, qp1=1), pause=0.2)
    bench.source.pause = 0.5
    frames = [(random_frame(rng, n % CASES), rng.random() < 0.03) for n in range(FRAMES)]
    whole = data_frame(rng, 64)
    surely = [whole[:-5], whole[:-1] + bytes([whole[-1] ^ 1]), roce(0x77, payload=bytes(9)),
              roce(wire.Opcode.PROBE, psn=5), seal(edit(whole, wire.BTH, wire.BTH_OFFSET, version=1)),
              seal(edit(whole, wire.UDP, UDP_AT, length=7))]
    surely += [flip(whole, byte, bit) for byte in UNPROTECTED for bit in range(8)]
    surely += [seal(edit(whole, wire.ETH, 0, dst=MAC ^ 1 << bit)) for bit in range(48)]
    surely += [seal(edit(whole, wire.IPV4, IPV4_AT, dst=IP ^ 1 << bit)) for bit in range(32)]
    surely += [host_frame(rng, opcode) for opcode in range(0x16)]
    surely += [host_frame(rng, 4, 0, padding) for padding in range(MAC_PADDING + 2)]
    surely += [host_frame(rng, 4, 4), seal(edit(host_frame(rng, 4, 4), wire.IPV4, IPV4_AT, total_length=44)),
               flip(host_frame(rng, 4, 0), 57, 3), roce(4, dest_qp=3)]
    # A truncated one for the host; and one that only resembles it, and is not a RoCE packet.
    surely += [host_frame(rng, 4, 60)[:-5],
               edit(host_frame(rng, 4, 60), wire.UDP, UDP_AT, dport=wire.ROCE_UDP_PORT + 1),
               edit(host_frame(rng, 4, 60), wire.ETH, 0, ethertype=wire.ETHERTYPE_ARP)]
    frames += [(whole, True), *((frame, False) for frame in surely)]
    task = cocotb.start_soon(expect(bench, frames))
    for frame, error in frames:
        bench.send(frame, error=error)
        if rng.random() < 0.5:
            bench.source.pause = rng.choice([0.3, 0.6])
        while bench.sent > bench.frames + 1:  # never so fast that the buffer fills
            await RisingEdge(dut.clk)
    cases = await task
    cocotb.log.info("cases: %s", dict(cases))
    reasons = {reason for _, reason in cases}
    assert reasons == {Reason.OK, Reason.BAD_FRAME, Reason.TRUNCATED, Reason.BAD_ICRC, Reason.BAD_HEADER,
                       Reason.UNKNOWN_OPCODE, Reason.LENGTH_MISMATCH}
    assert {kind for kind, _ in cases} == set(KINDS)
    assert {opcode for opcode, _ in bench.to_host} >= set(range(0x16)), "a standard opcode did not reach the host"
    assert bench.without_effect > 5
    assert bench.to_host[4, 58] >= 2, "none that was filled up, or none that was not"


@cocotb.test(timeout_time=400, timeout_unit="us")
async def truncated_anywhere(dut):
    """A data packet cut at every length, back to back, with whole packets of every length after it."""
    rng, bench = await start(dut)
    whole = data_frame(rng, 130)
    frames = []
    for cut, length in zip_longest(range(1, len(whole) + 1, STEP), range(0, 200, STEP)):
        frames += [(whole[:cut], False)] if cut else []
        frames += [(data_frame(rng, length), False)] if length is not None else []
    for frame, error in frames:
        bench.send(frame, error=error)
    await expect(bench, frames)


@cocotb.test(timeout_time=400, timeout_unit="us")
async def back_to_back(dut):
    """Frames without gaps cause no loss while the outputs are ready: minimum frames, probes, mixed sizes."""
    rng, bench = await start(dut)
    arp = wire.ETH.pack(dst=MAC, src=PEER_MAC, ethertype=wire.ETHERTYPE_ARP) + bytes(46)
    frames = [(arp, False)] * 40
    frames += [(roce(wire.Opcode.PROBE, psn=n, rsn=n), False) for n in range(40)]
    frames += [(rng.choice([arp, data_frame(rng, 0), data_frame(rng, some_length(rng)), roce(wire.Opcode.ACKNOWLEDGE),
                            roce(wire.Opcode.PROBE), arp[:40], data_frame(rng, 300)[:-1]]), rng.random() < 0.1)
               for _ in range(80 // STEP)]
    frames += [(bytes([1]) * 16384, False), (arp, False), (bytes([1]) * 9000, False), (arp, False)]
    for frame, error in frames:
        bench.send(frame, error=error)
    cases = await expect(bench, frames)
    assert cases["REFUSED", Reason.FRAME_TOO_LONG] == 1


@cocotb.test(timeout_time=400, timeout_unit="us")
async def full_rate(dut):
    """4096- and 1024-byte payloads: one beat per cycle in, and the payload at the rate of its frames."""
    for size in (4096, 1024):
        rng, bench = await start(dut)
        count = (8 if FAST else 4) * 4096 // size
        frames = [data_frame(rng, size) for _ in range(count)]
        beats_per_frame = len(beats(frames[0]))
        for frame in frames:
            bench.send(frame)
        cycles, first = 0, None
        last_at = first_header = first_payload = None
        for cycles in range(count * beats_per_frame + 100):
            await RisingEdge(dut.clk)
            if first is None and int(dut.i__valid.value):
                first = cycles
            if last_at is None and int(dut.i__valid.value) and bench.source.sent == beats_per_frame - 1:
                last_at = cycles
            if first_header is None and int(dut.o_header__valid.value):
                first_header = cycles
            if first_payload is None and int(dut.o_payload__valid.value):
                first_payload = cycles
            if bench.payload.received == count * size // 64:
                break
        total = cycles - first_payload + 1
        cocotb.log.info("%d bytes: header %d, payload %d cycles after the last beat; %d frames in %d cycles", size,
                        first_header - last_at, first_payload - last_at, count, total)
        assert first_header - last_at == LATENCY
        assert total <= count * beats_per_frame + 1
        await expect(bench, [(frame, False) for frame in frames])


@cocotb.test(timeout_time=400, timeout_unit="us")
async def overflow(dut):
    """When the outputs are not ready, whole frames are dropped; accepted ones are intact."""
    rng, bench = await start(dut)
    bench.header.pause = bench.payload.pause = 1.0
    await ClockCycles(dut.clk, 2)
    frames = [data_frame(rng, rng.choice([4096, 1500, 700, 64])) for _ in range(60)]
    frames += [roce(wire.Opcode.PROBE, psn=n) for n in range(80)]
    for frame in frames:
        bench.send(frame)
    await bench.settle()
    await ClockCycles(dut.clk, 4)
    dropped = len(bench.refused)
    assert set(bench.refused) == {Reason.BUFFER_FULL} and 60 < dropped < 110
    bench.header.pause = bench.payload.pause = 0.1
    left = iter(frames)
    for value in await bench.header.recv_many(len(frames) - dropped):
        parsed = (parse(frame, mac=MAC, ip=IP) for frame in left)
        header, payload = next(p for p in parsed if p[0].psn == RxHeader.from_bits(value).psn)
        compare(value, header)
        if payload:
            assert await receive(bench.payload) == (payload, 0)
    # and it continues afterwards
    bench.refused.clear()
    await bench.forget_asked()
    frame = data_frame(rng, 1000)
    bench.send(frame)
    await expect(bench, [(frame, False)])


async def shed_in(bench, frames):
    """Send frames back to back while no output is ready; return the number of accepted frames."""
    before = len(bench.refused)
    for frame in frames:
        bench.send(frame)
    await bench.settle()
    await ClockCycles(bench.dut.clk, 4)
    assert set(bench.refused[before:]) <= {Reason.BUFFER_FULL}
    return len(frames) - len(bench.refused) + before


@cocotb.test(timeout_time=400, timeout_unit="us")
async def new_packets_are_shed(dut):
    """When many packets wait, new ones are dropped, until few wait; all others are accepted while there is space."""
    rng, bench = await start(dut)

    def new(psn):
        opcode = rng.choice(sorted(wire.DATA_OPCODES - wire.RETX_OPCODES))
        return roce(opcode, payload=rng.randbytes(64), psn=psn)

    def other(psn):
        opcode = rng.choice([*sorted(wire.RETX_OPCODES), wire.Opcode.PROBE, *sorted(wire.DRIVER_OPCODES)])
        payload = rng.randbytes(64) if opcode in wire.RETX_OPCODES or opcode == wire.Opcode.LOSS_REPORT else b""
        return roce(opcode, payload=payload, psn=psn, rsn=psn)

    bench.header.pause = bench.payload.pause = 1.0
    await ClockCycles(dut.clk, 2)
    first = [new(psn) for psn in range(2 * SHED_FROM)]
    kept = await shed_in(bench, first)
    assert SHED_FROM <= kept <= SHED_FROM + UNDECIDED, kept
    space = HEADER_DEPTH - kept
    assert await shed_in(bench, [other(1000 + psn) for psn in range(space)]) == space
    assert await shed_in(bench, [other(1000 + psn) for psn in range(space, 2 * space)]) == 0
    bench.refused.clear()

    # A few are taken, then another one comes: it is dropped unless fewer than SHED_UNTIL wait.
    taken, waiting, sent = 0, HEADER_DEPTH, []
    while waiting >= SHED_UNTIL:
        bench.header.pause = 0.9
        await bench.header.recv()
        taken += 1
        bench.header.pause = 1.0
        await ClockCycles(dut.clk, 4)
        while bench.header.recv_nowait() is not None:
            taken += 1
        waiting = HEADER_DEPTH - taken
        sent.append(new(2000 + waiting))
        assert await shed_in(bench, sent[-1:]) == (waiting < SHED_UNTIL), waiting
    assert len(sent) > HEADER_DEPTH - SHED_UNTIL - 10, "too many were taken at once"
    bench.refused.clear()
    bench.header.pause = bench.payload.pause = 0.1
    await bench.header.recv_many(waiting)
    compare(await bench.header.recv(), parse(sent[-1], mac=MAC, ip=IP)[0])


@cocotb.test(timeout_time=400, timeout_unit="us")
async def with_pauses_nothing_is_shed_until_the_buffer_is_full(dut):
    """The marks for pauses are far below; new packets are dropped early only after one found no space."""
    rng, bench = await start(dut)
    dut.pause_enabled.value = 1
    bench.header.pause = bench.payload.pause = 1.0
    await ClockCycles(dut.clk, 2)

    def new():
        return roce(wire.Opcode.WRITE_ONLY, payload=rng.randbytes(64))

    async def take(count):
        """Take at least ``count`` headers; return the number."""
        taken = 0
        while taken < count:
            bench.header.pause = bench.payload.pause = 0.5
            await RisingEdge(dut.clk)
            bench.header.pause = bench.payload.pause = 1.0
            await ClockCycles(dut.clk, 4)
            while bench.header.recv_nowait() is not None:
                taken += 1
        return taken

    for _ in range(2):
        # Until it is full, one after the other.
        waiting, high = 0, 0
        assert dut.pause_low.value == 1 and dut.pause_high.value == 0
        while waiting < HEADER_DEPTH:
            assert await shed_in(bench, [new()]) == 1, waiting
            waiting += 1
            high = high or (waiting if dut.pause_high.value == 1 else 0)
            assert int(dut.pause_low.value) == (waiting < PAUSE_UNTIL)
        assert high == PAUSE_FROM
        assert await shed_in(bench, [new()]) == 0
        # From now on as without pauses, until few wait.
        waiting -= await take(HEADER_DEPTH - SHED_FROM - 8)
        kept = await shed_in(bench, [new()])
        assert SHED_FROM <= waiting and kept == 0, (waiting, kept)
        while waiting:
            waiting -= await take(1)
            assert int(dut.pause_high.value) == (waiting >= PAUSE_FROM)
        await bench.settle()
        bench.refused.clear()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def large_packets_are_shed(dut):
    """The same limits for the data in the payload buffer."""
    rng, bench = await start(dut)
    bench.payload.pause = 1.0
    await ClockCycles(dut.clk, 2)
    eighth, each = PARAMS.rx_buffer_beats // 8, 1024 // BEAT_BYTES

    def new():
        return roce(wire.Opcode.WRITE_ONLY, payload=rng.randbytes(1024))

    kept = await shed_in(bench, [new() for _ in range(PARAMS.rx_buffer_beats // each)])
    held = lambda: kept * each - bench.payload.received - 1     # noqa: E731 - one beat was fetched
    assert SHED_FROM_EIGHTHS * eighth <= held() < SHED_FROM_EIGHTHS * eighth + 2 * each
    assert await shed_in(bench, [roce(wire.Opcode.RETX_WRITE, payload=bytes(1024))]) == 1
    kept += 1
    while (before := held()) >= SHED_UNTIL_EIGHTHS * eighth:
        assert await shed_in(bench, [new()]) == 0, before
        bench.payload.pause = 0.9
        while held() > before - each:
            await RisingEdge(dut.clk)
        bench.payload.pause = 1.0
        await ClockCycles(dut.clk, 4)
    assert await shed_in(bench, [new()]) == 1
    bench.refused.clear()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def no_translation_completes(dut):
    """Packets without space for their translations are dropped, raw frames are not."""
    rng, bench = await start(dut)
    bench.translate.pause = 1.0
    await ClockCycles(dut.clk, 2)
    arp = wire.ETH.pack(dst=MAC, src=PEER_MAC, ethertype=wire.ETHERTYPE_ARP) + bytes(46)
    frames = [roce(wire.Opcode.PROBE, psn=n) for n in range(DEPTH + 9)] + [arp]
    for frame in frames:
        bench.send(frame)
    await bench.settle()
    assert bench.refused == [Reason.BUFFER_FULL] * 9
    bench.refused.clear()
    bench.translate.pause = 0.0
    await expect(bench, [(frame, False) for frame in [*frames[:DEPTH], arp]])
    assert not bench.without_effect


@cocotb.test(timeout_time=400, timeout_unit="us")
async def dropped_during_arrival(dut):
    """``give_up`` at every beat of a frame drops the frame if its translation was requested and it is incomplete.

    No other frame is dropped.
    """
    rng, bench = await start(dut)
    frame = data_frame(rng, 300)
    count = len(beats(frame))
    given_up = 0
    for at in range(count + 2):
        for value in beats(frame)[:at]:
            bench.source.send_nowait(value)
        await bench.source.idle()
        dut.give_up.value = 1
        await RisingEdge(dut.clk)
        dut.give_up.value = 0
        for value in beats(frame)[at:]:
            bench.source.send_nowait(value)
        bench.sent += 1
        bench.send(frame)
        await bench.settle()
        dropped = len(bench.refused)
        assert bench.refused == [Reason.BUFFER_FULL] * dropped and dropped == (2 <= at < count), at
        given_up += dropped
        bench.refused.clear()
        await expect(bench, [(frame, False)] * (2 - dropped))
    assert given_up == bench.without_effect == count - 2


@cocotb.test(timeout_time=400, timeout_unit="us")
async def raw_frames_have_a_share(dut):
    """When the Simple NIC takes none, raw frames after the first ones are dropped, packets of all kinds are not."""
    rng, bench = await start(dut, word(first=HOST_FIRST, log2=HOST_LOG2, ranged=1, qp1=1))
    bench.nic_takes = False
    raw = rng.choice([wire.ETH.pack(dst=MAC, src=PEER_MAC, ethertype=wire.ETHERTYPE_ARP) + bytes(46),
                      host_frame(rng, length=60)])
    packets = [roce(wire.Opcode.ACKNOWLEDGE), roce(wire.Opcode.PROBE), roce(wire.Opcode.WRITE_ONLY, payload=bytes(64))]
    frames = [frame for _ in range(2 * RAW_MAX) for frame in (raw, rng.choice(packets))]
    for frame in frames:
        bench.send(frame)
    await bench.settle()
    await ClockCycles(dut.clk, 4)
    assert bench.refused == [Reason.NIC_BUSY] * RAW_MAX
    bench.refused.clear()
    await expect(bench, [(frame, False) for n, frame in enumerate(frames) if frame is not raw or n < 2 * RAW_MAX])
    bench.raws_done = RAW_MAX
    await ClockCycles(dut.clk, RAW_MAX + 2)
    bench.nic_takes = True
    for _ in range(RAW_MAX):
        bench.send(raw)
    await expect(bench, [(raw, False)] * RAW_MAX)


@cocotb.test(timeout_time=400, timeout_unit="us")
async def disabled(dut):
    """Frames that begin while the card is disabled are dropped completely."""
    rng, bench = await start(dut)
    dut.enable.value = 0
    frames = [data_frame(rng, 1024), data_frame(rng, 1024), data_frame(rng, 100)]
    for frame in frames:
        bench.send(frame)
    while bench.frames < 1:
        await RisingEdge(dut.clk)
    dut.enable.value = 1
    await bench.settle()
    assert bench.refused == [Reason.NOT_READY] * 2
    bench.refused.clear()
    await expect(bench, [(frames[2], False)])


@cocotb.test(timeout_time=400, timeout_unit="us")
async def any_address(dut):
    """Without configured addresses, every frame is for this card."""
    rng, bench = await start(dut)
    dut.network__mac.value = dut.network__ip.value = 0
    frame = data_frame(rng, 10, dst_mac=PEER_MAC, dst_ip=7)
    bench.send(frame)
    compare(await bench.header.recv(), parse(frame)[0])
    await ReadOnly()
    assert not bench.refused


@pytest.mark.parametrize("sim", SIMULATORS)
def test_every_frame_is_classified_as_in_the_model(sim):
    simulate(Parse(PARAMS), name="receive_parse", cases=__file__, sim=sim)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_buffer_too_small_for_two_packets_is_rejected():
    with pytest.raises(ValueError, match="rx_buffer_beats"):
        Parse(PARAMS.with_(rx_buffer_beats=64))
    gc.collect()    # collect half-built components while their warning is ignored
