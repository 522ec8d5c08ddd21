"""Latencies of a write of 64 bytes through idle cards, in simulated time.

Its descriptor is pushed, so the card reads host memory only once, for the payload. The latency of that read is excluded
from ``doorbell_to_mac_cycles``, which counts from the host's write to the first beat of the frame.
``mac_to_dma_write_cycles`` counts from the first beat at the receiver to the first beat of the payload's DMA write.
``inline_...`` are the latencies of a write with the payload in the descriptor, which needs no read of host memory.
"""

import statistics

import cocotb
from cocotb.task import bridge
from cocotb.triggers import RisingEdge, Timer, gather
from cocotb.utils import get_sim_time

from weft.driver.terms.enums import SendFlags, WCStatus, WROpcode
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract.params import preset
from weft.tb.sim.flow.bench import given
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.pair.two_cards import run_cards
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.verify.bench.card_lab import PRESET, SILENCE_NS, Lab

QUIET_NS = 10_000          # between two measurements
PING_BYTES = 64
PINGS = 5
AT_MOST = {"post_send_to_receiver_completion_ns": 1_519, "doorbell_to_mac_cycles": 64, "mac_to_dma_write_cycles": 32,
           "inline_post_send_to_receiver_completion_ns": 600, "inline_doorbell_to_mac_cycles": 64,
           "read_requests_per_message": 1, "inline_read_requests_per_message": 0}


async def measure_pings(lab):
    """Send small writes, one at a time; store the medians."""
    ends = await lab.open_endpoints(4096, 4096, inline=PING_BYTES)
    for kind, flags in (("latency", 0), ("inline", SendFlags.INLINE)):
        found = []
        for number in range(PINGS):
            lab.report_progress(kind, number, PINGS)
            await Timer(QUIET_NS, "ns")
            found.append(await ping(lab, ends, flags))
        lab.figures[kind] = {name: statistics.median(ping[name] for ping in found) for name in found[0]}
    await lab.close_endpoints(ends)


async def ping(lab, ends, flags):
    begin, host = get_sim_time("ns"), lab.env.host("a")
    reads = host.reads
    times = {}

    async def first(name, signal, after=None):
        if after is not None:
            await after
        await RisingEdge(getattr(lab.dut, signal))
        times[name] = get_sim_time("ns")

    bell = cocotb.start_soon(first("bell", "a_s_axis_cq__tvalid"))
    watches = [bell, cocotb.start_soon(first("sent", "a_m_axis_tx__tvalid", bell))]
    if not flags:
        asks = cocotb.start_soon(first("asked", "a_m_axis_rq__tvalid", bell))       # for the payload
        watches += [asks, cocotb.start_soon(first("answered", "a_s_axis_rc__tvalid", asks))]
    arrives = cocotb.start_soon(first("arrived", "b_s_axis_rx__tvalid"))
    watches += [arrives, cocotb.start_soon(first("written", "b_m_axis_rq__tvalid", arrives))]
    receiver = cocotb.start_soon(bridge(take)(ends["b"], times))
    await bridge(give)(ends["a"], ends["b"].offer, times, flags)
    await receiver
    await gather(*watches)
    if flags:
        assert times["bell"] < times["sent"]
        times["asked"] = times["answered"] = times["bell"]
    else:
        assert times["bell"] < times["asked"] < times["answered"] < times["sent"]
    return {
        "post_send_to_receiver_completion": times["received"] - begin,
        "post_send_to_sender_completion": times["acknowledged"] - begin,
        "doorbell_to_mac": times["sent"] - times["bell"],
        "mac_to_dma_write": times["written"] - times["arrived"],
        "card": times["sent"] - times["bell"] - (times["answered"] - times["asked"]),
        "read_requests_per_message": host.reads - reads,
    }


def give(endpoint, offer, times, flags):
    endpoint.qps[0].post_send(SendWR(
        opcode=WROpcode.RDMA_WRITE_WITH_IMM, sg=[SGE(endpoint.mr.buf, PING_BYTES, endpoint.mr.lkey)],
        send_flags=SendFlags.SIGNALED | flags, rkey=offer.rkey, remote_addr=offer.va))
    wc, = endpoint.cq.wait(1, SILENCE_NS)
    assert wc.status is WCStatus.SUCCESS, wc
    times["acknowledged"] = endpoint.context.device.now_ns()


def take(endpoint, times):
    wc, = endpoint.cq.wait(1, SILENCE_NS)
    assert wc.status is WCStatus.SUCCESS, wc
    times["received"] = endpoint.context.device.now_ns()
    endpoint.qps[0].post_recv(RecvWR())
    endpoint.context.run_until(lambda: not endpoint.context.transmitting, SILENCE_NS)  # the acknowledgement


@cocotb.test()
async def pings(dut):
    """Pass the medians to the benchmark."""
    async with Lab(dut, given()) as lab:
        await measure_pings(lab)


def measure(progress):
    figures = run_cards(preset(PRESET), __file__, {"progress": str(progress)}, seed=1)
    return [*_rows(figures["latency"], ""), *_rows(figures["inline"], "inline_")]


def _rows(found, prefix):
    reads = found.pop("read_requests_per_message")
    cycles = {"doorbell_to_mac": found.pop("card") / CLOCK_PERIOD_NS,
              "mac_to_dma_write": found["mac_to_dma_write"] / CLOCK_PERIOD_NS}
    rows = [*((f"{name}_ns", "ns", value) for name, value in found.items()),
            *((f"{name}_cycles", "cycles", value) for name, value in cycles.items()),
            ("read_requests_per_message", "", reads)]
    return [Row(prefix + name, unit, value, at_most=AT_MOST.get(prefix + name)) for name, unit, value in rows]
