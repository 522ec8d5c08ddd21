"""Fixtures for tests of compiled fabrics."""

import pytest

from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.model.fabric.ready import compile_engine


@pytest.fixture(scope="session", autouse=True)
def _compiled():
    compile_engine()


@pytest.fixture
def seed():
    """Return a new seed for each run; a failure shows it, because it is an argument of the test's experiment."""
    return drawn_seed()
