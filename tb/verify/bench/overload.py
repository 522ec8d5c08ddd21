"""Goodput of a receiver whose host is slower than the line.

Card A writes messages of 64 bytes to card B as fast as the line allows; each is a packet, and each is reported to B's
driver. B's host is too slow in one of two ways:

- ``slow_host``: in a fraction of all cycles, the host accepts no beat of the card's requests, so that payload and
  reports back up;
- ``few_reports``: its report ring has 64 entries, and the card waits until the driver has read them.

Goodput counts each message once, when it is in host memory, over the middle of a transfer. The *ceiling* is the best
goodput of a sweep: the rate of the path is limited to values from somewhat below to somewhat above the goodput without
the limit, down to a rate that B receives without loss.

``overload_goodput_ratio`` relates goodput when A sends as fast as the line allows to the ceiling, the worse of both
ways. Packets that were retransmitted (``overload_retransmissions_...``) or arrived after their message was already
there (``overload_duplicates_...``) are per message. ``overload_share_jain_...`` is for the goodput of eight QPs with
equal load.
"""

import itertools
import os
from collections import Counter, deque
from dataclasses import asdict, dataclass, replace

import cocotb
from cocotb.task import bridge
from cocotb.triggers import gather
from cocotb.utils import get_sim_time
from cocotbext.pcie.core.tlp import TlpType

from weft.driver.terms.enums import WCStatus, WROpcode
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import DEEP, preset
from weft.model.impairments import FrameKind
from weft.tb.sim.flow.bench import given
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.link.mac import BITS_PER_SECOND
from weft.tb.sim.pair.pair import serve_until
from weft.tb.sim.pair.two_cards import SIDES, run_cards
from weft.tb.verify.bench.benchmark import CARDS
from weft.tb.verify.bench.card_lab import PRESET, SILENCE_NS, Lab
from weft.tb.verify.bench.fairness import jain
from weft.tb.verify.bench.meters import STEADY_FROM, STEADY_TO

MESSAGE_BYTES, PMTU = 64, 256
FRAME_BYTES = (wire.header_bytes(wire.Opcode.WRITE_ONLY) + MESSAGE_BYTES + wire.ICRC_BYTES + wire.LINE_OVERHEAD_BYTES)
FULL_MPPS = BITS_PER_SECOND / 8e6 / FRAME_BYTES
RING_LOG2, FEW_LOG2 = 12, 6
SWEEP = (0.97, 1.02, 1.06)    # of the goodput when A sends as fast as the line allows
RATIO, MARGIN, TWICE, JAIN = 0.95, 0.05, 0.001, 0.95


@dataclass(frozen=True)
class Load:
    """Settings of messages from A to B."""

    name: str
    qps: int = 1                    # each takes the next message when its window allows
    window: int = 4000              # messages in flight, sum over all QPs
    messages: int = 6400            # sum over all QPs
    mpps: float | None = None       # rate limit of the path, in million messages per second; None: the line
    held: float = 0.0               # fraction of the cycles in which B's host accepts no beat of the card's requests


HELD = 0.3
LOADS = {"slow_host": (RING_LOG2, (Load("slow_host", held=HELD), Load("slow_host_8qps", qps=8, held=HELD))),
         "few_reports": (FEW_LOG2, (Load("few_reports"), Load("few_reports_8qps", qps=8)))}


def every_so_often(part):
    """Yield an infinite pattern that is true in ``part`` of all cycles, evenly distributed."""
    for n in itertools.count():
        yield int((n + 1) * part) > int(n * part)


class Arrivals:
    """Times at which messages were first in the host's memory, and the number of repeated arrivals."""

    def __init__(self, host, buffer, offset, messages):
        self.first, self.again = {}, 0
        pages = {}
        for at in range(0, messages * MESSAGE_BYTES, MESSAGE_BYTES):
            pages[buffer.physical(offset + at)] = at // MESSAGE_BYTES
        self._number, self._host, self.watching = pages, host, True
        for kind in (TlpType.MEM_WRITE, TlpType.MEM_WRITE_64):
            host.register_rx_tlp_handler(kind, self._written)

    async def _written(self, tlp):
        await self._host.handle_mem_write_tlp(tlp)
        if self.watching and (number := self._number.get(tlp.address)) is not None:
            self.again += number in self.first
            self.first.setdefault(number, get_sim_time("ns"))

    def steady(self):
        """Return the nanoseconds of the middle of the transfer, and the messages that arrived in it."""
        order = sorted(self.first.items(), key=lambda item: item[1])
        inside = order[int(STEADY_FROM * len(order)):int(STEADY_TO * len(order))]
        return inside[-1][1] - inside[0][1], [number for number, _ in inside[1:]]


def send(endpoint, offer, load, destination, sender_of):
    """Run the sender: every QP keeps its part of the window in flight; ``sender_of`` gets the QP of each message."""
    todo, left = deque(range(load.messages)), load.messages
    free = [load.window // load.qps] * load.qps
    place = {qp.qp_num: n for n, qp in enumerate(endpoint.qps)}

    def post():
        while todo and any(free):
            for n, qp in enumerate(endpoint.qps):
                if todo and free[n]:
                    number = todo.popleft()
                    at = number * MESSAGE_BYTES
                    sge = SGE(endpoint.mr.buf + at, MESSAGE_BYTES, endpoint.mr.lkey)
                    qp.post_send(SendWR(number, WROpcode.RDMA_WRITE, sg=[sge], rkey=offer.rkey,
                                        remote_addr=offer.va + destination + at))
                    sender_of[number] = n
                    free[n] -= 1

    post()
    while left:
        for wc in endpoint.cq.wait(16, SILENCE_NS):
            assert wc.status is WCStatus.SUCCESS, wc
            left -= 1
            free[place[wc.qp_num]] += 1
        post()


class OverloadLab(Lab):
    """Two cards, and a receiver with a slow host."""

    async def load(self, load):
        """Run a :class:`Load` and store its figures."""
        self.report_progress(f"overload, {load.name}")
        size = load.messages * MESSAGE_BYTES
        destination = size + 4096
        ends = await self.open_endpoints(2 * destination, PMTU, load.window // load.qps, load.qps)
        data = os.urandom(size)
        ends["a"].mr.write(data)
        link = self.env.link("a_to_b").impairments
        link.config = replace(link.config, rate_gbps=None if load.mpps is None else load.mpps * FRAME_BYTES * 8 / 1000)
        sink = self.env.sides["b"].hard_block.rq_sink
        arrivals, sender_of = Arrivals(self.env.host("b"), ends["b"].mr.buffer, destination, load.messages), {}
        before, again = await bridge(self.contexts["b"].statistics)(), link.counters.sent[FrameKind.RETX]
        finished = []
        sink.pause_by(every_so_often(load.held) if load.held else None)

        def sender():
            send(ends["a"], ends["b"].offer, load, destination, sender_of)
            finished.append(True)

        await gather(bridge(sender)(), bridge(serve_until)(lambda: finished, self.contexts["b"], 2_000))
        sink.pause_by(None)
        arrivals.watching = False
        link.config = replace(link.config, rate_gbps=None)
        counted = await bridge(self.contexts["b"].statistics)()
        assert ends["b"].mr.read(size, destination) == data, "the bytes received differ"
        change = {name: counted[name] - before[name] for name in counted if counted[name] != before[name]}
        ns, numbers = arrivals.steady()
        self.figures[load.name] = {
            "mpps": 1000 * len(numbers) / ns,
            "again": (link.counters.sent[FrameKind.RETX] - again) / load.messages,
            "twice": (arrivals.again + sum(change.get(f"drop_{why}", 0) for why in (
                "duplicate", "stale_rsn", "stale_psn", "not_in_node"))) / load.messages,
            "dropped": change.get("drop_buffer_full", 0) / load.messages,
            "jain": jain(list(Counter(sender_of[number] for number in numbers).values())),
        }
        await self.close_endpoints(ends)


@cocotb.test()
async def overload(dut):
    settings = given()
    bench = OverloadLab(dut, settings)
    for side in SIDES:
        bench.ring_log2[side] = dict.fromkeys(abi.Ring, RING_LOG2)
    bench.ring_log2["b"][abi.Ring.META_REPORT] = settings["reports_log2"]
    async with bench:
        for load in settings["loads"]:
            load = Load(**load)
            await bench.load(load)
            for part in SWEEP if load.qps == 1 else ():
                mpps = part * bench.figures[load.name]["mpps"]
                if mpps < FULL_MPPS:
                    await bench.load(replace(load, name=f"{load.name} {part:g}", mpps=mpps))


def run_overload(loads, *, reports_log2=RING_LOG2, progress):
    """Run the bench with 2^``reports_log2`` entries in B's report ring; return figures by load, or load and part."""
    settings = {"loads": [asdict(load) for load in loads], "reports_log2": reports_log2, "progress": str(progress)}
    return run_cards(preset(PRESET).with_(**DEEP), __file__, settings, seed=1)


def rows(progress):
    ratios, found = {}, []
    directions = {"slow_host": f"a receiver whose host takes nothing of it in {HELD:.0%} of all cycles",
                  "few_reports": f"a receiver with {1 << FEW_LOG2} entries for reports"}
    for name, (reports_log2, loads) in LOADS.items():
        figures = run_overload(loads, reports_log2=reports_log2, progress=progress)
        full, shared = (figures[load.name] for load in loads)
        ceiling = max(figure["mpps"] for key, figure in figures.items() if key.split()[0] == name)
        held = [figure["mpps"] for key, figure in figures.items() if key.split()[0] == name and not figure["dropped"]]
        ratios[name] = full["mpps"] / ceiling
        subject = (f"{FULL_MPPS:.0f} million writes of {MESSAGE_BYTES} bytes a second offered, one way, each reported, "
                   f"{loads[0].window} in flight, to {directions[name]}; tags and descriptors as in basic; {CARDS}")
        found += [
            Row(f"overload_ceiling_mpps_{name}", "M/s", ceiling,
                conditions=f"{subject}; the best of rates from {SWEEP[0]:g} to {SWEEP[-1]:g} times the goodput, "
                           "and of all that the line carries"),
            Row(f"overload_lossless_mpps_{name}", "M/s", max(held, default=0.0),
                conditions=f"{subject}; the best of these rates at which nothing was dropped, 0 if there was none"),
            Row(f"overload_goodput_mpps_{name}", "M/s", full["mpps"], conditions=f"{subject}; one QP"),
            Row(f"overload_goodput_ratio_{name}", "of the ceiling", ratios[name], conditions=f"{subject}; one QP"),
            Row(f"overload_retransmissions_{name}", "per message", full["again"],
                at_most=FULL_MPPS / ceiling - 1 + MARGIN,
                conditions=f"{subject}; one QP; at most what came above the ceiling, and {MARGIN:g}"),
            Row(f"overload_duplicates_{name}", "per message", full["twice"], at_most=TWICE,
                conditions=f"{subject}; one QP; packets whose message was there already"),
            Row(f"overload_share_jain_{name}", "", shared["jain"], at_least=JAIN if name == "slow_host" else None,
                conditions=f"{subject}; {loads[1].qps} QPs"),
            Row(f"overload_goodput_mpps_{name}_8qps", "M/s", shared["mpps"],
                conditions=f"{subject}; {loads[1].qps} QPs"),
        ]
    worst = min(ratios, key=ratios.get)
    return [Row("overload_goodput_ratio", "of the ceiling", ratios[worst], at_least=RATIO,
                conditions=f"the worse of two receivers that cannot keep up: see overload_goodput_ratio_{worst}"),
            *found]
