"""Segmenter against brute force: cuts at remote PMTU boundaries, one packet per cycle."""

import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout

from weft.hdl import abi
from weft.hdl.abi import Reason
from weft.hdl.params import preset
from weft.hdl.transmit.segment import CHUNK_MAX, Segmenter, TxJob
from weft.tb.blocks.transmit.agents import packets_of, random_work, refusal, run
from weft.tb.flow.clock import start_clock
from weft.tb.flow.reserved import junk
from weft.tb.flow.simulate import SIMULATORS, bench_seed
from weft.tb.flow.stream import StreamSink, StreamSource

PARAMS = preset("test")
SAME = ("sqpn", "dqpn", "lkey", "rkey", "imm", "dst_mac", "dst_ip", "sport")
OWN = ("opcode", "psn", "rsn", "has_imm", "ack_req", "local_va", "remote_va", "length", "last")


def flat(packet):
    """What a packet must say."""
    work = packet.work
    return ({name: int(getattr(packet, name)) for name in OWN} | {name: getattr(work, name) for name in SAME}
            | {"has_rsn": work.retransmit, "ring": 1, "reason": packet.reason})


def seen(value):
    job = TxJob.from_bits(value)
    return {name: getattr(job.packet, name) for name in (*OWN, *SAME, "has_rsn", "ring")} | {
        "reason": Reason(job.reason)}


def works(rng, count):
    for number in range(count):
        work = random_work(rng, qps=PARAMS.qps, length_max=20000)
        if number % 8 == 0:
            work |= rng.choice([{"opcode": 0}, {"opcode": 15}, {"pmtu": 0}, {"pmtu": 7}, {"length": CHUNK_MAX + 1},
                                {"sqpn": PARAMS.qps}])
        yield work


@cocotb.test()
async def cuts_like_brute_force(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    source, sink = StreamSource(dut, "i", dut.clk, rng=rng), StreamSink(dut, "o", dut.clk, rng=rng)
    for pause in (0.3, 0):
        source.pause = sink.pause = pause
        expected = []
        for work in works(rng, 48):
            expected += [flat(p) for p in packets_of(work, qps=PARAMS.qps)]
            source.send_nowait(abi.WORK.pack(**work, **junk(abi.WORK, rng)))
        before, cycles = sink.received, 0
        while sink.received < before + len(expected):
            await RisingEdge(dut.clk)
            cycles += sink.received > before
        got = [seen(v) for v in await with_timeout(sink.recv_many(len(expected)), 1, "us")]
        assert got == expected
        assert {e["length"] == 0 for e in expected} == {e["reason"] == Reason.OK for e in expected} == {True, False}
        if not pause:
            assert cycles <= len(expected) + 1, "one packet per cycle, descriptors back to back"


@pytest.mark.parametrize("sim", SIMULATORS)
def test_segmenter_cuts_like_brute_force(sim):
    run(Segmenter(PARAMS, ring=1), name="segmenter", cases=__file__, sim=sim)


def test_ring_is_checked():
    assert "ring" in refusal(lambda: Segmenter(PARAMS, ring=2))
