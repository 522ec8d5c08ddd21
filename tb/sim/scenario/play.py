"""A scenario on a pair of cards, and what is kept of its run."""

from functools import partial

from weft.model.card.timing import CYCLE_NS
from weft.tb.sim.pair.sides import PEER, SIDES
from weft.tb.sim.scenario.recorder import Recorder
from weft.tb.sim.scenario.scenario import Losses
from weft.tb.sim.scenario.traffic import Traffic

KEPT = ("tx_packets", "tx_retransmissions", "rx_packets", "holes", "nodes_sealed", "nodes_linked", "nodes_retired",
        "cache_hits", "cache_misses", "match_stall_cycles", "prefetches", "reports", "rx_unmatched")


async def play(pair, scenario):
    """Run a scenario; return completion, stalls, counters and sequences, as JSON can hold them."""
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
        "sequences": {f"{side} {name}": said for side in SIDES for name, said in recorders[side].sequences.items()},
        "problems": problems + complaints,
    }
