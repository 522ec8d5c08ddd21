"""Run of a scenario on a pair of cards, and the record of its reports.

The record holds what the cards report, in order, without the fields that may differ between equal runs: addresses and
phases.
"""

from functools import partial

from weft.hdl.contract import abi
from weft.hdl.contract.abi import ReportKind
from weft.model.card.timing import CYCLE_NS
from weft.tb.sim.pair.sides import PEER, SIDES
from weft.tb.sim.scenario.scenario import Losses
from weft.tb.sim.scenario.traffic import Traffic

KEPT = ("tx_packets", "tx_retransmissions", "rx_packets", "holes", "nodes_sealed", "nodes_linked", "nodes_retired",
        "cache_hits", "cache_misses", "match_stall_cycles", "prefetches", "reports", "rx_unmatched")

SOURCES = {ReportKind.NODE: "node", ReportKind.RETIRE: "retire"}      # all other kinds: "event"
LEFT_OUT = {ReportKind.RETIRE: {"line"}, ReportKind.PACED: {"time_ns"},
            ReportKind.NODE: {"next_line", "next_phase", "next_adjacent", "check"}}
ALWAYS_OUT = {"phase", "va"}


class Recorder:
    """Recorder of the entries written to the META_REPORT ring of a host.

    ``sequences`` maps ``"<qp> <source>"`` to the list of reports: one sequence for each QP and each reporting block.
    ``paced`` maps a QP to the times at which its paced descriptors ended, in nanoseconds.
    """

    def __init__(self, memory, context):
        ring = context.rings[abi.Ring.META_REPORT]
        self._base, self._end = ring.buffer.physical(0), ring.buffer.physical(0) + ring.depth * abi.BLOCK_BYTES
        self.sequences, self.paced = {}, {}
        memory.dma_taps.append(self._written)

    def _written(self, address, data):
        if not self._base <= address < self._end:
            return
        for at in range(0, len(data), abi.BLOCK_BYTES):
            self._take(data[at:at + abi.BLOCK_BYTES])

    def _take(self, entry):
        kind = abi.REPORT_EVENT.unpack(entry).kind
        layout = abi.NODE if kind is ReportKind.NODE else abi.REPORT_LAYOUT[kind]
        fields = vars(layout.unpack(entry))
        if kind is ReportKind.PACED:
            self.paced.setdefault(fields["qpn"], []).append(fields["time_ns"])
        out = ALWAYS_OUT | LEFT_OUT.get(kind, set())
        event = [kind.name, *(int(value) for name, value in sorted(fields.items()) if name not in out)]
        self.sequences.setdefault(f"{fields['qpn']} {SOURCES.get(kind, 'event')}", []).append(event)


async def play(pair, scenario):
    """Run a scenario; return completion time, stalls, counters and sequences as JSON values."""
    await pair.start()
    for side, peer in PEER.items():
        pair.link(f"{side}_to_{peer}").impairments.drop_when(Losses(scenario, side))
    recorders = {side: Recorder(pair.host(side).memory, pair.contexts[side]) for side in SIDES}
    traffic = Traffic(scenario, pair.contexts)
    for side in SIDES:
        await pair.call(traffic.open, side)
    await pair.connect(traffic.endpoints, **traffic.attributes)
    for side in SIDES:
        await pair.call(traffic.post_receives, side)
    await pair.gather(*(partial(traffic.run, side) for side in SIDES))
    problems = traffic.problems()
    counters, _, complaints = await pair.close()
    return {
        "cycles": max(traffic.nanoseconds.values()) / CYCLE_NS,
        "stall_cycles": sum(counters[side]["match_stall_cycles"] for side in SIDES),
        "counters": {side: {name: counters[side][name] for name in KEPT} for side in SIDES},
        "sequences": {f"{side} {name}": event for side in SIDES for name, event in recorders[side].sequences.items()},
        "paced_ns": {f"{side} {qpn}": ends[-1] - ends[0]
                     for side in SIDES for qpn, ends in recorders[side].paced.items()},
        "problems": problems + complaints,
    }
