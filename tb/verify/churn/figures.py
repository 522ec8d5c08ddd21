"""Figures of node churn, by the million in the functional model and by the ten thousand in the RTL.

``adamap_block_leaks`` and ``adamap_stale_accepts`` are the sums over both; further rows hold the numbers of nodes.
"""

from weft.tb.sim.flow.figures import Row
from weft.tb.verify.churn.functional import run_churn
from weft.tb.verify.churn.rtl_cases import churn_in_rtl

FUNCTIONAL, RTL = 1_000_000, 10_000
RUNS = 2


def measure(progress):
    rtl = [churn_in_rtl(RTL // RUNS, seed=seed, progress=progress) for seed in range(1, RUNS + 1)]
    sums = run_churn(FUNCTIONAL, seed=1)
    by_level = {
        "rtl": [sum(run[name] for run in rtl) for name in ("nodes", "leaks", "stale_accepts")],
        "functional": [sums["retired"] + sums["dropped"], sums["leaks"], sums["stale_accepts"]],
    }
    rows = []
    for level, least in (("rtl", RTL), ("functional", FUNCTIONAL)):
        nodes, leaks, stale = by_level[level]
        rows += [Row(f"adamap_nodes_{level}", "", nodes, at_least=least),
                 Row(f"adamap_block_leaks_{level}", "", leaks, at_most=0),
                 Row(f"adamap_stale_accepts_{level}", "", stale, at_most=0)]
    _, leaks, stale = map(sum, zip(*by_level.values(), strict=True))
    return [Row("adamap_block_leaks", "", leaks, at_most=0), Row("adamap_stale_accepts", "", stale, at_most=0), *rows]
