"""What a message costs the driver and how many go a second, through the driver as it is.

Register accesses are the reads and writes of both drivers from the first request to the last completion, divided by
the messages of both directions: a register access crosses PCIe by itself, a read of one holds its processor up for the
round trip. Applications wait for completions, sixteen at a time, and the drivers wait for interrupts.

- ``mmio_per_message``: messages of 64 KiB on 12 QPs, one way; two in flight on each.
- ``mmio_per_small_message``: messages of 64 bytes on one QP, both ways, 200 in flight.
- ``..._message_rate_...``: messages of 64 bytes on one QP, 200 in flight, over the steady middle of the transfer (see
  :mod:`~weft.tb.measure.line_rate`).
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import cocotb
from cocotb.task import bridge
from cocotb.triggers import gather

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.terms.enums import MTU
from weft.hdl.params import preset
from weft.tb.flow.simulate import simulate
from weft.tb.measure.benchmark import CARDS, Row
from weft.tb.measure.line_rate import (
    PEER,
    PRESET,
    SILENCE_NS,
    Lab,
    Transfer,
    exchange,
    meter_placed,
    meter_sent,
    steady_gbps,
)
from weft.tb.software.register_traffic import RegisterTraffic
from weft.tb.world.two_cards import SIDES, TOP, two_cards_text

VARIABLE = "WEFT_MESSAGES"
LARGE_BYTES, LARGE_QPS, LARGE_PER_QP, LARGE_WINDOW = 64 << 10, 12, 4, 2
SMALL_BYTES, SMALL_PMTU = 64, 256
MMIO_PER_MESSAGE, MMIO_PER_SMALL_MESSAGE = 4, 1
CONDITIONS = (f"{CARDS}; both drivers counted, which wait for interrupts, and look at memory every 2 µs while they "
              "transmit")


@dataclass(frozen=True)
class Stream:
    """Small messages on one QP.

    Attributes
    ----------
    name : str
    senders : str
        ``"ab"``: both at once; ``"a"``: A to B alone.
    window : int
        Messages in flight.
    messages : int
        In each direction.
    """

    name: str
    senders: str
    window: int = 200
    messages: int = 1600

    @property
    def transfer(self):
        """The same for :func:`~weft.tb.measure.line_rate.exchange`."""
        return Transfer(self.name, SMALL_PMTU, self.messages * SMALL_BYTES, self.senders, message_bytes=SMALL_BYTES,
                        window=self.window)


STREAMS = (Stream("tx", "a"), Stream("both_ways", "ab"))


class MessageLab(Lab):
    """Two cards brought up whose drivers' register accesses are counted."""

    async def start(self):
        await super().start()
        self.traffic = {side: RegisterTraffic(self.env.device(side)) for side in SIDES}

    def count(self, messages):
        """Accesses per message of both sides since they were cleared, and of each, by register."""
        traffic = self.traffic.values()
        return {"mmio": sum(side.total for side in traffic) / messages,
                "waits": sum(len(side.waits) for side in traffic) / messages,
                **{side: {name: count / messages for name, count in (traffic.reads + traffic.writes).items()}
                   for side, traffic in self.traffic.items()}}

    def clear(self):
        for traffic in self.traffic.values():
            traffic.clear()

    async def large(self):
        """A file in large messages over several QPs."""
        self.tell("large messages")
        length = LARGE_BYTES * LARGE_QPS * LARGE_PER_QP
        ends = {side: await bridge(Endpoint)(self.contexts[side], length, qps=LARGE_QPS, window=LARGE_WINDOW)
                for side in SIDES}
        for side in SIDES:
            await bridge(ends[side].connect)(ends[PEER[side]].connections, path_mtu=MTU.MTU_4096)
        data = os.urandom(length)
        ends["a"].mr.write(data)
        await bridge(post_receives)(ends["b"])
        self.clear()
        sent, _ = await gather(
            bridge(lambda: send_file(ends["a"], ends["b"].offer, message_bytes=LARGE_BYTES, timeout_ns=SILENCE_NS))(),
            bridge(lambda: receive_file(ends["b"], timeout_ns=SILENCE_NS))())
        assert ends["b"].mr.read(length, 0) == data, "the bytes received differ"
        assert sent["messages"] == LARGE_QPS * LARGE_PER_QP
        self.figures["large"] = self.count(sent["messages"]) | {"gbps": 8 * length / sent["nanoseconds"]}
        for end in ends.values():
            await bridge(end.close)()

    async def stream(self, stream):
        """Small messages."""
        self.tell(f"small messages, {stream.name}")
        job = stream.transfer
        ends = await self.connect(job.memory_bytes, job.pmtu, job.window)
        meters, over = [], []
        data = {side: os.urandom(job.payload) for side in job.senders}
        for side in job.senders:
            ends[side].mr.write(data[side])
            sent, end = meter_sent(self.env, f"{side}_to_{PEER[side]}")
            placed, watch = meter_placed(self.env.host(PEER[side]), job.pmtu)
            watch(ends[PEER[side]].mr.buffer, job.destination, job.payload)
            meters += [sent, placed]
            over.append(end)
        self.clear()
        await gather(*[bridge(exchange)(ends[side], ends[PEER[side]].offer, job, side in job.senders,
                                        PEER[side] in job.senders) for side in SIDES])
        for end in over:
            end()
        for side in job.senders:
            assert ends[PEER[side]].mr.read(job.payload, job.destination) == data[side], "the bytes received differ"
        assert all(meter.total == job.payload for meter in meters), "packets were sent twice"
        rate = min(steady_gbps(meters)) / (8 * SMALL_BYTES) * 1000
        self.figures[stream.name] = self.count(stream.messages * len(job.senders)) | {"mpps": rate}
        for end in ends.values():
            await bridge(end.close)()


@cocotb.test()
async def messages(dut):
    settings = json.loads(os.environ[VARIABLE])
    bench = MessageLab(dut, settings)
    await bench.start()
    if settings["large"]:
        await bench.large()
    for stream in settings["streams"]:
        await bench.stream(Stream(**stream))
    bench.env.finish()
    Path(os.environ["WEFT_RUN"], "figures.json").write_text(json.dumps(bench.figures))


def run_messages(streams=STREAMS, *, large=True, progress, seed=1):
    """Run the bench; its figures: ``"large"`` unless left out, and those of each stream by name."""
    settings = {"streams": [vars(stream) for stream in streams], "large": large, "progress": str(progress)}
    run = simulate(verilog=two_cards_text(preset(PRESET)), top=TOP, name=f"two-cards-{PRESET}", cases=__file__,
                   sim="verilator", optimize="run", seed=seed, env={VARIABLE: json.dumps(settings)})
    return json.loads((run / "figures.json").read_text())


def measure(progress):
    """The rows."""
    figures = run_messages(progress=progress)
    large, both = figures["large"], figures["both_ways"]
    of_large = f"messages of {LARGE_BYTES >> 10} KiB one way on {LARGE_QPS} QPs, {LARGE_WINDOW} in flight on each; "
    of_small = f"messages of {SMALL_BYTES} bytes on one QP, {STREAMS[0].window} in flight; "
    rows = [
        Row("mmio_per_message", "", large["mmio"], at_most=MMIO_PER_MESSAGE, conditions=of_large + CONDITIONS),
        Row("mmio_per_small_message", "", both["mmio"], at_most=MMIO_PER_SMALL_MESSAGE,
            conditions=f"both ways, {of_small}{CONDITIONS}"),
        Row("tx_message_rate_mpps", "M/s", figures["tx"]["mpps"], conditions=f"one way, {of_small}{CONDITIONS}"),
        Row("message_rate_both_ways_mpps", "M/s", both["mpps"],
            conditions=f"each way, both at once, {of_small}{CONDITIONS}"),
        Row("waits_per_small_message", "", both["waits"], conditions=f"both ways, {of_small}{CONDITIONS}"),
        Row("waits_per_message", "", large["waits"], conditions=of_large + CONDITIONS),
        Row("mmio_per_message_payload_gbps", "Gb/s", large["gbps"], conditions=of_large + CONDITIONS),
    ]
    for side, name in (("a", "sender"), ("b", "receiver")):
        rows += [Row(f"mmio_per_message_{name}_{register}", "", count, conditions=of_large + CONDITIONS)
                 for register, count in sorted(large[side].items())]
    return rows
