"""Settings that all tests share; the rest is in pyproject.toml."""

import os

from weft.tb.sim.flow.system import pytest_terminal_summary  # noqa: F401 pytest finds it here

# Amaranth finds the yosys of its own wheel; a yosys of the system may be of any version.
os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")

# Folders in which most tests simulate two whole cards, all with one simulator that takes long to build.
CARDS = {"cards", "job", "lives", "bench"}


def pytest_collection_modifyitems(items):
    """The workers begin with a part each, and who is done takes the last tests of another: so what waits for the
    simulator of two cards is all in the first part, and all end with short tests."""
    def turn(item):
        if item.path.parent.name in CARDS or item.get_closest_marker("cards"):
            return 0
        return 1 if item.get_closest_marker("slow") else 2
    items.sort(key=turn)
