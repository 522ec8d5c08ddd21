"""Recommended settings for a path, from the experiments: blocks of the pool, cached nodes n, watermark."""

import math
from typing import Any

from weft.model.wan.experiment import Experiment
from weft.model.wan.result import measure

PATHS = {   # name in the table, and the experiment
    "metro: 100 Gb/s, 2 ms, 0.1 % lost": Experiment(rtt_ms=2, loss=1e-3, warmup_rtts=4),
    "country: 100 Gb/s, 10 ms, 0.1 % lost": Experiment(rtt_ms=10, loss=1e-3, warmup_rtts=4, measured_rtts=5),
    "continent: 100 Gb/s, 30 ms, 1 % lost": Experiment(rtt_ms=30, loss=1e-2, warmup_rtts=4, measured_rtts=2),
    "continent, bursts of 64, 1 % lost": Experiment(rtt_ms=30, burst=64, burst_loss=1e-2, warmup_rtts=4,
                                                    measured_rtts=2),
    "1000 QPs: 100 Gb/s, 30 ms, 1 % lost": Experiment(rtt_ms=30, qps=1000, loss=1e-2, warmup_rtts=4, measured_rtts=2),
}
STALLED_MAX = 1e-3
DEPTHS = (1, 2, 4, 8, 16)


def stalled(row: dict[str, Any]) -> float:
    """Return the share of retransmissions that waited for their node."""
    return row["stalls"] / max(1, row["matches"])


def sizes(paths: dict[str, Experiment] | None = None) -> list[tuple[str, int, int, float, int]]:
    """Return ``(path, peak of blocks in use, recommended blocks, share that waited, n)`` of each path.

    The recommended blocks are twice the peak, rounded up to a power of two, since losses vary. n is the smallest one
    with at most one stall per thousand retransmissions, or the largest of :data:`DEPTHS`.
    """
    rows = []
    for name, x in (PATHS if paths is None else paths).items():
        for depth in DEPTHS:
            found = measure(x.with_(depth=depth, watermark=depth))
            part = stalled(vars(found))
            if part <= STALLED_MAX:
                break
        used = max(found.blocks_peak, x.qps)
        rows.append((name, used, 1 << math.ceil(math.log2(2 * used)), part, depth))
    return rows
