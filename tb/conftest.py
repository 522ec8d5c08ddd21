"""Settings that all tests share; the rest is in pyproject.toml."""

import os

from weft.tb.flow.system import pytest_terminal_summary  # noqa: F401 pytest finds it here

# Amaranth finds the yosys of its own wheel; a yosys of the system may be of any version.
os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
