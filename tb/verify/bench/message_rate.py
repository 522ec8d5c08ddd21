"""Register accesses per message and message rates, with the unmodified driver.

Register accesses are the reads and writes of both drivers from the first request to the last completion, divided by the
messages of both directions. Each register access is a separate PCIe transaction, and a read stalls its processor for
the round trip. Applications wait for completions, sixteen at a time, and the drivers wait for interrupts.

Message rates, inline or not, are those of the steady middle of the transfer (see
:mod:`~weft.tb.verify.bench.meters`), on cards that read as far ahead as ``basic`` and ``full``; an inline message takes
two entries of the ring. ``read_requests_...`` counts reads of the sender's host memory in these runs, per message. For
``overload_...`` see :mod:`~weft.tb.verify.bench.overload`.
"""

import os
from dataclasses import replace

import cocotb
from cocotb.task import bridge
from cocotb.triggers import gather

from weft.driver.application.file_transfer import post_receives, receive_file, send_file
from weft.hdl.contract.params import DEEP, preset
from weft.model.impairments import FrameKind
from weft.tb.sim.flow.bench import given
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.pair.settings import PEER
from weft.tb.sim.pair.two_cards import SIDES, run_cards
from weft.tb.verify.bench import overload
from weft.tb.verify.bench.benchmark import CARDS
from weft.tb.verify.bench.card_lab import PRESET, SILENCE_NS, Lab
from weft.tb.verify.bench.line_rate import Transfer, exchange, metered
from weft.tb.verify.bench.meters import steady_gbps
from weft.tb.verify.bench.register_traffic import RegisterTraffic

LARGE_BYTES, LARGE_QPS, LARGE_PER_QP, LARGE_WINDOW = 64 << 10, 12, 4, 2
SMALL_BYTES, SMALL_PMTU = 64, 256
MMIO_PER_MESSAGE, MMIO_PER_SMALL_MESSAGE = 4, 1
TX_MPPS, RX_EACH_MPPS, BOTH_WAYS_MPPS, INLINE_MPPS = 72, 60, 45, 45
CONDITIONS = (f"{CARDS}; both drivers counted, which wait for interrupts, and look at memory every 2 µs while they "
              "transmit")


def _small(name, senders, *, window=1000, messages=6400, **more):
    """Return the settings of a stream of small messages on one QP; ``messages`` in each direction."""
    return Transfer(name, SMALL_PMTU, messages * SMALL_BYTES, senders, window=window, message_bytes=SMALL_BYTES, **more)


STREAMS = (_small("small", "ab", window=200, messages=1600),)
DEEP_STREAMS = (_small("tx", "a"), _small("both_ways", "ab"), _small("rx_64", "a", immediates=64),
                _small("rx_each", "a", immediates=1), _small("inline", "a", inline=True))
DEEP_WINDOW, DEEP_LOG2 = DEEP_STREAMS[0].window, 12
STRADDLE_STREAMS = tuple(replace(stream, name=f"{stream.name}_straddle") for stream in DEEP_STREAMS[:2])
# Name of the figure, stream, bar, conditions.
RATES = (
    ("tx_message_rate", "tx", TX_MPPS, "one way"),
    ("rx_message_rate", "rx_64", TX_MPPS, "one way, a receive completes per 64 messages"),
    ("rx_message_rate_each", "rx_each", RX_EACH_MPPS, "one way, a receive completes with each"),
    ("message_rate_both_ways", "both_ways", BOTH_WAYS_MPPS, "each way, both at once"),
    ("tx_message_rate_straddle", "tx_straddle", TX_MPPS, "one way, PCIe blocks with straddle"),
    ("message_rate_both_ways_straddle", "both_ways_straddle", BOTH_WAYS_MPPS,
     "each way, both at once, PCIe blocks with straddle"),
    ("inline_tx_message_rate", "inline", INLINE_MPPS, "one way, inline"),
)


class MessageLab(Lab):
    """Two cards brought up, with counters of the drivers' register accesses."""

    async def start(self):
        await super().start()
        self.traffic = {side: RegisterTraffic(self.env.device(side)) for side in SIDES}

    def count(self, messages):
        """Return accesses and waits per message since :meth:`clear`, of both sides, and accesses per register."""
        traffic = self.traffic.values()
        return {"mmio": sum(side.total for side in traffic) / messages,
                "waits": sum(len(side.waits) for side in traffic) / messages,
                **{side: {name: count / messages for name, count in (traffic.reads + traffic.writes).items()}
                   for side, traffic in self.traffic.items()}}

    def clear(self):
        for traffic in self.traffic.values():
            traffic.clear()

    async def large(self, per_qp):
        """Transfer a file in ``per_qp`` large messages on each of several QPs."""
        self.report_progress("large messages")
        length = LARGE_BYTES * LARGE_QPS * per_qp
        ends = await self.open_endpoints(length, 4096, LARGE_WINDOW, LARGE_QPS)
        data = os.urandom(length)
        ends["a"].mr.write(data)
        self.clear()
        sent, _ = await gather(
            bridge(lambda: send_file(ends["a"], ends["b"].offer, message_bytes=LARGE_BYTES, timeout_ns=SILENCE_NS))(),
            bridge(lambda: receive_file(ends["b"], timeout_ns=SILENCE_NS))())
        assert ends["b"].mr.read(length, 0) == data, "the bytes received differ"
        assert sent["messages"] == LARGE_QPS * per_qp
        self.figures["large"] = self.count(sent["messages"]) | {"gbps": 8 * length / sent["nanoseconds"]}
        await self.close_endpoints(ends)

    async def stream(self, job):
        """Transfer small messages."""
        self.report_progress(f"small messages, {job.name}")
        receives = 2 * job.window if job.immediates else 1      # posted at any time
        ends = await self.open_endpoints(job.memory_bytes, job.pmtu, job.window, receives=receives,
                               inline=SMALL_BYTES * job.inline)
        for _ in range(receives - 1):
            for side in SIDES:
                await bridge(post_receives)(ends[side])
        messages = job.payload // SMALL_BYTES * len(job.senders)
        links = [self.env.link(f"{side}_to_{PEER[side]}").impairments.counters for side in job.senders]
        before = sum(link.sent[FrameKind.RETX] for link in links)
        with metered(self, ends, job, SMALL_BYTES) as (sent, placed):       # in any order
            self.clear()
            reads = sum(self.env.host(side).reads for side in job.senders)
            await gather(*[bridge(exchange)(ends[side], ends[PEER[side]].offer, job, side in job.senders,
                                            PEER[side] in job.senders) for side in SIDES])
        meters = [*sent.values(), *placed.values()]
        assert all(meter.total == job.payload for meter in meters), "packets were sent twice"
        again = sum(link.sent[FrameKind.RETX] for link in links) - before
        rate = min(steady_gbps(meters)) / (8 * SMALL_BYTES) * 1000
        read = sum(self.env.host(side).reads for side in job.senders) - reads
        self.figures[job.name] = self.count(messages) | {
            "mpps": rate, "again": again / messages, "reads": read / messages}
        await self.close_endpoints(ends)


@cocotb.test()
async def messages(dut):
    settings = given()
    bench = MessageLab(dut, settings, straddle=settings["straddle"])
    for side, log2 in settings["ring_log2"].items():
        bench.ring_log2[side] = log2
    async with bench:
        if settings["large"]:
            await bench.large(settings["large"])
        for stream in settings["streams"]:
            await bench.stream(Transfer(**stream))


def run_messages(streams=STREAMS, *, large=LARGE_PER_QP, deep=False, straddle=False, ring_log2=(8, 8), progress):
    """Run the bench; return its figures: ``"large"`` if a QP has large messages, and those of each stream by name.

    Cards of ``deep`` read as far ahead as the real sizes; ``ring_log2`` has the rings' depths of A and B.
    """
    card = preset(PRESET).with_(straddle=straddle, **(DEEP if deep else {}))
    settings = {"streams": [vars(stream) for stream in streams], "large": large, "straddle": straddle,
                "ring_log2": dict(zip(SIDES, ring_log2, strict=True)), "progress": str(progress)}
    return run_cards(card, __file__, settings, seed=1)


def measure(progress):
    figures = run_messages(progress=progress)
    for streams in (DEEP_STREAMS, STRADDLE_STREAMS):
        figures |= run_messages(streams, large=0, deep=True, straddle=streams is STRADDLE_STREAMS,
                                ring_log2=(DEEP_LOG2, DEEP_LOG2), progress=progress)
    large, both = figures["large"], figures["small"]
    of_large = f"messages of {LARGE_BYTES >> 10} KiB one way on {LARGE_QPS} QPs, {LARGE_WINDOW} in flight on each; "
    of_small = f"messages of {SMALL_BYTES} bytes on one QP, {STREAMS[0].window} in flight; "
    of_deep = (f"messages of {SMALL_BYTES} bytes on one QP, {DEEP_WINDOW} in flight, tags and descriptors as in basic, "
               f"rings of {1 << DEEP_LOG2} entries; ")
    rows = [
        Row("mmio_per_message", "", large["mmio"], at_most=MMIO_PER_MESSAGE, conditions=of_large + CONDITIONS),
        Row("mmio_per_small_message", "", both["mmio"], at_most=MMIO_PER_SMALL_MESSAGE,
            conditions=f"both ways, {of_small}{CONDITIONS}"),
        *(Row(f"{name}_mpps", "M/s", figures[stream]["mpps"], at_least=bar,
              conditions=f"{directions}, {of_deep}{CONDITIONS}")
          for name, stream, bar, directions in RATES),
        *[Row(f"read_requests_per_{name}_message", "", figures[stream]["reads"],
              conditions=f"one way, {'inline, ' * (stream != 'tx')}{of_deep}{CONDITIONS}")
          for name, stream in (("small", "tx"), ("inline", "inline"))],
        *overload.rows(progress),
        Row("waits_per_small_message", "", both["waits"], conditions=f"both ways, {of_small}{CONDITIONS}"),
        Row("waits_per_message", "", large["waits"], conditions=of_large + CONDITIONS),
        Row("mmio_per_message_payload_gbps", "Gb/s", large["gbps"], conditions=of_large + CONDITIONS),
    ]
    for side, name in (("a", "sender"), ("b", "receiver")):
        rows += [Row(f"mmio_per_message_{name}_{register}", "", count, conditions=of_large + CONDITIONS)
                 for register, count in sorted(large[side].items())]
    return rows
