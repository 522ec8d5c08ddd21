"""Example program of connection management, run as documented; over real cards in ``tb/test/cards``."""

import subprocess
import sys

import pytest

from weft.tb.test.driver.cm.hosts import LOSSY, Hosts
from weft.tb.test.examples import FOLDER, load


def test_example_runs_as_documented():
    done = subprocess.run([sys.executable, FOLDER / "ping_pong.py", "--rounds", "4", "--loss", "0.05"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 round trips of 64 bytes: median ") and not done.stderr


@pytest.mark.parametrize("size", [1, 5000])
def test_both_ends_over_a_bad_link(size, bench_seed):
    example = load("ping_pong")
    with Hosts(bench_seed, LOSSY) as hosts:
        _, times = hosts.run(lambda: example.server("10.0.0.1", "4711"),
                             lambda: example.client("10.0.0.2", "10.0.0.1", "4711", rounds=6, size=size))
    assert len(times) == 6 and min(times) > 2 * LOSSY.delay_ns
