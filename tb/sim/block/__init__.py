"""Agents around single blocks of the card, shared by tests and benchmarks."""
