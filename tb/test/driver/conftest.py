"""Seed of a test: random, or ``WEFT_SEED``; the output shows how to repeat the test."""


import pytest

from weft.tb.sim.flow.seed import drawn_seed


@pytest.fixture
def bench_seed(request):
    """Return the seed, an integer, and print the command that repeats the test."""
    seed = drawn_seed()
    print(f"run again: WEFT_SEED={seed} pytest '{request.node.nodeid}'")
    return seed
