"""The seed of a test: fresh each time, or ``WEFT_SEED``; a failure shows how to run it again."""

import os
import random

import pytest


@pytest.fixture
def bench_seed(request):
    """An integer."""
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"run again: WEFT_SEED={seed} pytest '{request.node.nodeid}'")
    return seed
