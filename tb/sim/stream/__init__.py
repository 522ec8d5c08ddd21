"""Bench agents: clock, streams and AXI4-Stream buses."""
