"""Settings that all tests share; the rest is in pyproject.toml."""

import os

# Amaranth finds the yosys of its own wheel; a yosys of the system may be of any version.
os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
