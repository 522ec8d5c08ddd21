"""Fixtures for tests of compiled models."""

import pytest

from weft.tb.sim.flow.seed import drawn_seed


@pytest.fixture
def seed():
    """Return a new seed for each run; a failure shows it, because it is an argument of the test's experiment."""
    return drawn_seed()
