"""Report of the main job, for every back end."""

import hashlib
from typing import TYPE_CHECKING, Any

from weft.driver.verbs.linux_counters import driver_counts
from weft.model.card.timing import CYCLE_NS
from weft.tb.app.job.programs import Programs
from weft.tb.sim.judge.blocks import missing_blocks
from weft.tb.sim.pair.sides import DIRECTIONS

if TYPE_CHECKING:
    from weft.tb.sim.pair.pair import Pair


def outcome(pair: "Pair", programs: Programs, received: bytes, nanoseconds: float, wall: float) -> dict[str, Any]:
    """Return the report, an object that JSON can represent.

    Parameters
    ----------
    pair
        Closed pair.
    nanoseconds, wall
        Duration of the transfer, in simulated nanoseconds and in seconds.

    Figures that need a complete transfer (``goodput_gbps``, ``spurious_retransmissions``) are None after a failure.
    """
    job, data, counters = programs.job, programs.data, pair.counters
    links = {direction: pair.link(direction).counters for direction in DIRECTIONS}
    link, counters_a, counters_b = links["a_to_b"], counters["a"], counters["b"]
    lost = link.destroyed_data
    retransmitted = counters_a["tx_retransmissions"]
    missing = sum(map(missing_blocks, pair.blocks.values()))
    failures = programs.failures + pair.complaints
    complete = not failures and received == data
    if received != data:
        failures.append("the bytes received differ from those sent")
    if missing:
        failures.append(f"{missing} blocks of the knitting buffer are not back on the free list")
    spurious = retransmitted - lost if complete else None
    more, warnings = job.judge_spurious(spurious or 0)
    failures += more
    cycles = round(nanoseconds / CYCLE_NS)
    return {
        "ok": not failures, "failures": failures, "warnings": warnings,
        "file": job.file, "bytes": len(data),
        "sha256_sent": hashlib.sha256(data).hexdigest(),
        "sha256_received": hashlib.sha256(received).hexdigest(),
        "packets_sent": counters_a["tx_packets"], "packets_lost": lost,
        "packets_retransmitted": retransmitted,
        "spurious_retransmissions": spurious,
        "goodput_gbps": len(data) * 8 / nanoseconds if complete and nanoseconds else None,
        "cycles": cycles, "wall_seconds": wall, "cycles_per_second": cycles / wall,
        "nodes_linked": counters_b["nodes_linked"], "nodes_retired": counters_b["nodes_retired"],
        "cache_hits": counters_b["cache_hits"], "cache_misses": counters_b["cache_misses"],
        "match_stall_cycles": counters_b["match_stall_cycles"],
        **({} if job.pfc is None else {"pauses_requested": counters_b["tx_pauses"],
                                       "cycles_paused": counters_a["pause_cycles"]}),
        "blocks_missing": missing,
        "seed": job.seed, "command": job.command,
        "exercised": {side: sorted(board.exercised) for side, board in pair.scoreboards.items()},
        "counters": counters,
        "driver": {side: driver_counts(context.counts) for side, context in pair.contexts.items()},
        "link": {name: found.as_dict() for name, found in links.items()},
    }
