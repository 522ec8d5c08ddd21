"""Tests of figures computed from times: the best rate against all pairs, percentiles by definition."""

import random

import pytest

from weft.tb.app.perf import table
from weft.tb.app.perf.bandwidth import peak_rate
from weft.tb.app.perf.latency import summary
from weft.tb.app.perf.plan import COMMANDS, Plan
from weft.tb.sim.flow.seed import drawn_seed


@pytest.mark.parametrize("try_", range(5))
def test_peak_is_the_best_of_all_pairs(try_):
    seed = drawn_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    posted, completed, now = [], [], 0
    while len(posted) < 40:
        now += rng.randint(0, 30)
        posted += [now] * rng.randint(1, 3)
    count, now = 0, posted[0]
    while count < len(posted):
        count = min(len(posted), count + rng.randint(1, 4))
        now = max(now, posted[count - 1]) + rng.randint(1, 50)
        completed.append((count, now))
    best = max((n - i) / (at - posted[i]) for n, at in completed for i in range(n))
    assert peak_rate(posted, completed) == pytest.approx(best)


def test_summary_has_the_percentiles():
    seed = drawn_seed()
    print(f"seed {seed}")
    values = list(range(1, 1001))
    random.Random(seed).shuffle(values)
    found = summary(values)
    assert (found["t_min"], found["t_max"], found["t_typical"]) == (1, 1000, 500.5)
    assert (found["percentile_99"], found["percentile_99.9"]) == (990, 999)
    assert found["t_avg"] == pytest.approx(500.5) and found["t_stdev"] == pytest.approx(288.675, rel=1e-4)


@pytest.mark.parametrize("command", COMMANDS)
def test_row_is_aligned_with_its_header(command):
    """Each figure begins below its title, whatever the unit."""
    plan = Plan(command, [65536], [10])
    names = (["MsgSize", "n_iterations", "BW_peak", "BW_average", "MsgRate"] if plan.is_bandwidth else
             ["MsgSize", "n_iterations", *summary([1.0])])
    row = table.line({name: 65536 if name == "MsgSize" else 5 for name in names})
    for gbits in (False, True):
        head = table.head(plan, gbits)
        titles = head.split("#iterations")[0].split() + ["#iterations"]
        assert titles == ["#bytes", "#iterations"]
        assert len(row.split()) == len(names)
        assert abs(row.index("5", row.index("65536") + 5) - head.index("#iterations")) <= 1


def test_directions_are_summed():
    one = {"MsgSize": 8, "n_iterations": 5, "BW_peak": 2.0, "BW_average": 1.0, "MsgRate": 0.5}
    both = table.both_ways(one, one)
    assert both == {"MsgSize": 8, "n_iterations": 10, "BW_peak": 4.0, "BW_average": 2.0, "MsgRate": 1.0}
    assert table.in_units({"BW_peak": 0.125, "MsgRate": 1}, True) == {"BW_peak": 1.0, "MsgRate": 1}


def test_small_rates_keep_their_digits():
    """Atomics over a long path: with two decimals the rate would be shown as 0."""
    shown = {97.656: "97.66", 1.0: "1.00", 0.5: "0.500", 0.0094675: "0.00947", 0.000123: "0.000123", 3e-6: "0.000003",
             0: "0.00"}
    assert {value: table.rate(value) for value in shown} == shown
