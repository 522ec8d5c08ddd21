"""Settings shared by all tests; other settings are in pyproject.toml."""

import os
from pathlib import Path

import pytest

from weft.tb.test.system import pytest_terminal_summary  # noqa: F401 pytest finds it here
from weft.tb.test.tiers import tiers, unused

# Amaranth finds the yosys of its wheel; a yosys of the system may have any version.
os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")

HERE = Path(__file__).parent
# Folders in which most tests simulate two whole cards, all with one simulator that takes long to build.
CARDS = {"cards", "job", "churn", "bench"}


def name_of(item):
    """Return the name of a test below ``tb/test``: its file and its pytest name in it."""
    return f"{item.path.relative_to(HERE).as_posix()}::{item.nodeid.partition('::')[2]}"


def pytest_collection_modifyitems(config, items):
    """Mark the tiers, and sort: first the tests that wait for the simulator of two cards, slow ones before others."""
    names = {item: name_of(item) for item in items}
    for item, name in names.items():
        for tier in tiers(name):
            item.add_marker(tier)
    if config.args == config.getini("testpaths") and (left := unused(names.values())):
        raise pytest.UsageError(f"tb/test/tiers.py names tests that do not exist: {', '.join(left)}")

    def turn(item):
        waits = item.path.parent.name in CARDS or item.get_closest_marker("cards")
        return not waits, not item.get_closest_marker("slow")
    items.sort(key=turn)
