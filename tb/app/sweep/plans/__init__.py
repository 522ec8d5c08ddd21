"""Sweep plans that weft includes, one TOML file each."""

from pathlib import Path

PLANS = {file.stem: file for file in sorted(Path(__file__).parent.glob("*.toml"))}
