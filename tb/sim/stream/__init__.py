"""Agents of benches: clock, streams and AXI4-Stream buses."""
