"""The seed of a test: fresh each time, or ``WEFT_SEED``; a failure shows how to run it again."""


import pytest

from weft.tb.sim.flow.seed import drawn_seed


@pytest.fixture
def bench_seed(request):
    """An integer."""
    seed = drawn_seed()
    print(f"run again: WEFT_SEED={seed} pytest '{request.node.nodeid}'")
    return seed
