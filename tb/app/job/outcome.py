"""The report of the main job, whatever its cards are made of."""

import hashlib

from weft.model.card.timing import CYCLE_NS
from weft.model.impairments import FrameKind
from weft.tb.sim.judge.blocks import missing_blocks


def outcome(job, data, received, *, counters, blocks, links, exercised, failures, nanoseconds, wall):
    """The report, an object that JSON can hold.

    Parameters
    ----------
    job : Job
    data, received : bytes
    counters, blocks, exercised : dict of side
        Counters of the cards, uses of the knitting blocks, what the scoreboards saw.
    links : dict
        :class:`~weft.model.impairments.LinkCounters` of ``a_to_b`` and ``b_to_a``.
    failures : list of str
        What went wrong so far.
    nanoseconds, wall : float
        Duration of the transfer, in simulated nanoseconds and in seconds.

    Figures that only a whole transfer has (``goodput_gbps``, ``spurious_retransmissions``) are None after a failure.
    """
    link, counters_a, counters_b = links["a_to_b"], counters["a"], counters["b"]
    lost = link.destroyed[FrameKind.DATA] + link.destroyed[FrameKind.RETX]
    retransmitted = counters_a["tx_retransmissions"]
    missing = sum(map(missing_blocks, blocks.values()))
    complete = not failures and received == data
    failures = list(failures)
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
        **({} if job.pfc is None else {"pauses_asked": counters_b["tx_pauses"],
                                       "cycles_paused": counters_a["pause_cycles"]}),
        "blocks_missing": missing,
        "seed": job.seed, "command": job.command,
        "exercised": {side: sorted(found) for side, found in exercised.items()},
        "counters": counters,
        "link": {name: found.as_dict() for name, found in links.items()},
    }
