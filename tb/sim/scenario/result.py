"""What is kept of a scenario's run, on the gateware as in the model."""

from weft.model.card.timing import CYCLE_NS
from weft.tb.sim.pair.sides import SIDES

KEPT = ("tx_packets", "tx_retransmissions", "rx_packets", "holes", "nodes_sealed", "nodes_linked", "nodes_retired",
        "cache_hits", "cache_misses", "match_stall_cycles", "prefetches", "reports", "rx_unmatched")


def result(traffic, counters, recorders, problems):
    """Completion, stalls, counters and sequences, as JSON can hold them.

    Parameters
    ----------
    traffic : Traffic
        After it ran.
    counters : dict of side
    recorders : dict of side
    problems : list of str
    """
    return {
        "cycles": max(traffic.nanoseconds.values()) / CYCLE_NS,
        "stall_cycles": sum(counters[side]["match_stall_cycles"] for side in SIDES),
        "counters": {side: {name: counters[side][name] for name in KEPT} for side in SIDES},
        "sequences": {f"{side} {name}": said for side in SIDES for name, said in recorders[side].sequences.items()},
        "problems": problems,
    }
