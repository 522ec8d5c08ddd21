"""Tests of the segmenter against brute force: cuts at remote PMTU boundaries, one packet per cycle."""

import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout

from weft.hdl.contract import abi
from weft.hdl.contract.abi import Reason
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import WORK, tx_segment
from weft.hdl.transmit.segment import Segmenter
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.transmit.agents import entries_of, packets_of, random_inline, random_work, refusal, run

PARAMS = preset("test")
SEGMENT = tx_segment(paced=True)
SAME = ("sqpn", "dqpn", "lkey", "rkey", "imm", "dst_mac", "dst_ip", "sport", "ect")
OWN = ("opcode", "psn", "rsn", "has_imm", "ack_req", "local_va", "remote_va", "length", "last")
SILENT = {"length": 0, "last": 1, "inline": 0, "ring": 1, "reason": Reason.BAD_DESCRIPTOR}
INLINE = range(6)       # of every 16 descriptors
PACED = range(10, 14)


def flat(packet):
    """Return the expected fields of a packet."""
    work = packet.work
    return ({name: int(getattr(packet, name)) for name in OWN} | {name: getattr(work, name) for name in SAME}
            | {"has_rsn": work.retransmit, "ring": 1, "reason": packet.reason}
            | ({} if work.payload is None else {"lkey": None, "local_va": None})
            | {"inline": int(bool(work.payload and packet.length)), "payload": work.payload if packet.length else None})


def flat_entries(work):
    """Return the expected fields of a descriptor's packets, and of its entries that cause none."""
    if work.get("lost"):
        return [SILENT] * (1 + (work["lost"] == "other"))
    packets = [flat(p) for p in packets_of(work, qps=PARAMS.qps)]
    return [SILENT] * (len(work.get("payload", b"")) > abi.INLINE_HEAD_BYTES) + packets


def paced_entry(work, refused):
    """Return the expected fields of the packet of a descriptor for the pacer."""
    return flat(packets_of(work | {"pmtu": 0}, qps=PARAMS.qps)[0]) if refused else SILENT


def seen(value, expected):
    segment = SEGMENT.from_bits(value)
    job, data = segment.job, segment.data.to_bytes(abi.BLOCK_BYTES, "little")
    if job.silent:
        return {name: getattr(job.packet, name) for name in SILENT if name != "reason"} | {"reason": Reason(job.reason)}
    found = {name: getattr(job.packet, name) for name in (*OWN, *SAME, "has_rsn", "ring", "inline")} | {
        "reason": Reason(job.reason), "payload": data[:job.packet.length] if job.packet.inline else None}
    return found | {name: None for name in ("lkey", "local_va") if expected.get(name, 0) is None}


def works(rng, count):
    """Yield random descriptors, every sixteenth of a kind."""
    for number in range(count):
        inline = number % 16 in INLINE
        work = (random_inline if inline else random_work)(
            rng, qps=PARAMS.qps, **({} if inline else {"length_max": 20000}))
        if number % 8 == 0:
            work |= rng.choice([{"opcode": 0}, {"opcode": 15}, {"pmtu": 0}, {"pmtu": 7}, {"sqpn": PARAMS.qps},
                                *[{"length": n} for n in (abi.INLINE_MAX + 1, abi.CHUNK_MAX) if inline]])
        elif number % 16 < 3:      # one with and one without an INLINE_DATA entry of another descriptor
            length = rng.randint(abi.INLINE_HEAD_BYTES + 1, abi.INLINE_MAX)
            work |= {"length": length, "payload": rng.randbytes(length), "lost": ["other", "alone"][number % 2]}
        elif number % 16 < 5:      # one with a matching INLINE_DATA entry, and one without
            length = rng.randint(*[(1, abi.INLINE_HEAD_BYTES), (abi.INLINE_HEAD_BYTES + 1, abi.INLINE_MAX)][number % 2])
            work |= {"length": length, "payload": rng.randbytes(length)}
        elif number % 16 in PACED:
            work["paced"] = 1
        yield work


async def pace(dut, rng, taken):
    """Take descriptors for the pacer, or refuse them; note both."""
    while True:
        ready, refused = rng.getrandbits(1), rng.getrandbits(1)
        dut.o_pace__ready.value, dut.refused.value = ready, refused
        await RisingEdge(dut.clk)
        if ready and int(dut.o_pace__valid.value):
            taken.append((WORK.from_bits(int(dut.o_pace__payload.value)), refused))


@cocotb.test()
async def cuts_like_brute_force(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    source, sink = StreamSource(dut, "i", dut.clk, rng=rng), StreamSink(dut, "o", dut.clk, rng=rng)
    taken = []
    cocotb.start_soon(pace(dut, rng, taken))
    for pause in (0.3, 0):
        source.pause = sink.pause = pause
        expected, to_pace = [], {}
        for work in works(rng, 48):
            if work.get("paced") and not pause:
                continue
            if work.get("paced"):
                to_pace[len(expected)] = work
            expected += [None] if work.get("paced") else flat_entries(work)
            for entry in entries_of(work, rng):
                source.send_nowait(entry)
        before, cycles = sink.received, 0
        while sink.received < before + len(expected):
            await RisingEdge(dut.clk)
            cycles += sink.received > before
        got = await with_timeout(sink.recv_many(len(expected)), 1, "us")
        for (place, work), (entry, refused) in zip(to_pace.items(), taken, strict=True):
            expected[place] = paced_entry(work, refused)
            assert (entry.psn, entry.length, entry.remote_va) == (work["psn"], work["length"], work["remote_va"])
        assert not to_pace or {refused for _, refused in taken} == {0, 1}
        taken.clear()
        got = [seen(value, e) for value, e in zip(got, expected, strict=True)]
        assert got == expected
        assert {e["length"] == 0 for e in expected} == {e["reason"] == Reason.OK for e in expected} == {True, False}
        assert sum(e == SILENT for e in expected) > 8
        assert {len(e["payload"]) > abi.INLINE_HEAD_BYTES for e in expected if e.get("payload")} == {True, False}
        if not pause:
            assert cycles <= len(expected) + 1, "one packet per cycle, descriptors back to back"


@pytest.mark.parametrize("sim", SIMULATORS)
def test_segmenter_cuts_like_brute_force(sim):
    run(Segmenter(PARAMS, ring=1), name="segmenter", cases=__file__, sim=sim)


def test_ring_is_checked():
    assert "ring" in refusal(lambda: Segmenter(PARAMS, ring=2))
