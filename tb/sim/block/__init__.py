"""Agents around single blocks of the card that tests and benchmarks share."""
