"""Lives of Adamap nodes, functional by the million and in the RTL by the ten thousand: leaks and stale accepts.

``adamap_block_leaks`` and ``adamap_stale_accepts`` are the sums over both; a row for each says of how many lives.
"""

import json
from dataclasses import replace

from weft.hdl.adamap.adamap import Adamap
from weft.hdl.params import preset
from weft.tb.benchmark import Row
from weft.tb.node_lives import live
from weft.tb.sim import simulate
from weft.tb.with_qp_table import WithQpTable

PARAMS = replace(preset("test"), qps=8, window_bits=64, builder_slots=4, cache_entries=8, prefetch_depth_max=4,
                 match_queue=32, knit_extents=4)
FUNCTIONAL, RTL = 1_000_000, 10_000
RUNS = 2


def live_in_rtl(count, *, seed=None, **environment):
    """The sums of :class:`~weft.tb.room_lives.RoomLives` when ``count`` nodes have lived."""
    run = simulate(WithQpTable(Adamap(PARAMS)), name="room_lives", bench="weft.tb.room_lives", sim="verilator",
                   seed=seed, env={"WEFT_LIVES": str(count), **environment})
    return json.loads((run / "lives.json").read_text())


def measure(progress):
    """The rows."""
    rtl = [live_in_rtl(RTL // RUNS, seed=seed, WEFT_PROGRESS=str(progress)) for seed in range(1, RUNS + 1)]
    sums = live(FUNCTIONAL, seed=1)
    by_level = {
        "rtl": [sum(run[name] for run in rtl) for name in ("lives", "leaks", "stale_accepts")],
        "functional": [sums["retired"] + sums["dropped"], sums["leaks"], sums["stale_accepts"]],
    }
    rows = []
    for level, least in (("rtl", RTL), ("functional", FUNCTIONAL)):
        lives, leaks, stale = by_level[level]
        rows += [Row(f"adamap_node_lives_{level}", "", lives, at_least=least),
                 Row(f"adamap_block_leaks_{level}", "", leaks, at_most=0),
                 Row(f"adamap_stale_accepts_{level}", "", stale, at_most=0)]
    _, leaks, stale = map(sum, zip(*by_level.values(), strict=True))
    return [Row("adamap_block_leaks", "", leaks, at_most=0), Row("adamap_stale_accepts", "", stale, at_most=0), *rows]
