"""Settings that all tests share; the rest is in pyproject.toml."""

import os

from weft.tb.flow.system import pytest_terminal_summary  # noqa: F401 pytest finds it here

# Amaranth finds the yosys of its own wheel; a yosys of the system may be of any version.
os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")

# Folders in which most tests simulate two whole cards.
LONG = {"cards", "job", "lives", "measure"}


def pytest_collection_modifyitems(items):
    """Long tests first in each half: a worker that has nothing left to do takes the other's last tests, and with short
    ones both end together."""
    long, short = [], []
    for item in items:
        (long if item.path.parent.name in LONG or item.get_closest_marker("slow") else short).append(item)
    some, half = len(long) // 2, len(short) // 2
    items[:] = long[:some] + short[:half] + long[some:] + short[half:]
