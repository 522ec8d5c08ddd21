"""Report of the main job, for every back end."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.driver.verbs.linux_counters import driver_counts
from weft.model.card.timing import CYCLE_NS
from weft.model.fabric.frame.report import report as fabric_report
from weft.model.impairments import FrameKind
from weft.tb.app.job.job import Job
from weft.tb.app.job.programs import Programs
from weft.tb.sim.judge.blocks import missing_blocks
from weft.tb.sim.pair.settings import DIRECTIONS

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


if TYPE_CHECKING:
    from weft.tb.app.job.network_job import Transfer
    from weft.tb.sim.pair.network import Network


def network_outcome(network: "Network", job: Job, transfers: Sequence["Transfer"], nanoseconds: float,
                    wall: float) -> dict[str, Any]:
    """Return the report, an object that JSON can represent, with the names of :func:`weft.tb.app.job.outcome.outcome`.

    ``flows`` has a result for each flow, ``fabric`` the counters of the fabric; ``counters`` those of the cards, and
    ``driver`` those of the drivers, by host. ``sha256_received`` is that of a file that arrived changed, if there is
    one; ``bytes`` counts all files.

    Parameters
    ----------
    network
        Closed network.
    nanoseconds, wall
        Duration of all transfers, in simulated nanoseconds and in seconds.
    """
    counters = dict(zip(network.network.hosts, (network.counters[side] for side in network.sides), strict=True))
    data, flows = transfers[0].programs.data, [_result(transfer) for transfer in transfers]
    wrong = [flow for flow in flows if flow["sha256"] != flows[0]["sha256_sent"]]
    lost = sum(network.fabric.destroyed[kind] for kind in (FrameKind.DATA, FrameKind.RETX))
    retransmitted, missing = _sum(counters, "tx_retransmissions"), sum(map(missing_blocks, network.blocks.values()))
    failures = [f"{transfer.name}: {failure}" for transfer in transfers for failure in transfer.programs.failures]
    failures += network.complaints
    complete = not failures and not wrong
    failures += [f"{flow['destination']} received other bytes than {flow['source']} sent" for flow in wrong]
    if missing:
        failures.append(f"{missing} blocks of the knitting buffer are not back on the free list")
    spurious = retransmitted - lost if complete else None
    more, warnings = job.judge_spurious(spurious or 0)
    failures += more
    cycles, total = round(nanoseconds / CYCLE_NS), len(data) * len(flows)
    return {
        "ok": not failures, "failures": failures, "warnings": warnings, "file": job.file, "bytes": total,
        "sha256_sent": flows[0]["sha256_sent"], "sha256_received": (wrong or flows)[0]["sha256"],
        "packets_sent": _sum(counters, "tx_packets"), "packets_lost": lost, "packets_retransmitted": retransmitted,
        "spurious_retransmissions": spurious,
        "goodput_gbps": total * 8 / nanoseconds if complete and nanoseconds else None,
        "cycles": cycles, "wall_seconds": wall, "cycles_per_second": cycles / wall,
        **{name: _sum(counters, name) for name in ("nodes_linked", "nodes_retired", "cache_hits", "cache_misses",
                                                   "match_stall_cycles")},
        "blocks_missing": missing, "seed": job.seed, "command": job.command,
        "exercised": {host: sorted(network.scoreboards[network.side(host)].exercised) for host in counters},
        "counters": counters, "driver": {host: driver_counts(network.contexts[network.side(host)].counts)
                                         for host in counters}, "flows": flows, "fabric": fabric_report(network.fabric)}


def _sum(counters: dict[str, dict[str, int]], name: str) -> int:
    return sum(one[name] for one in counters.values())


def _result(transfer: "Transfer") -> dict[str, Any]:
    """Return the result of a flow."""
    data = transfer.programs.data
    return {"source": transfer.flow.source, "destination": transfer.flow.destination,
            "sha256_sent": hashlib.sha256(data).hexdigest(), "sha256": hashlib.sha256(transfer.received).hexdigest(),
            "nanoseconds": transfer.nanoseconds,
            "goodput_gbps": len(data) * 8 / transfer.nanoseconds if transfer.nanoseconds else None}
