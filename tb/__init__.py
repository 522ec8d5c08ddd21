"""Test benches, tests, benchmarks and formal specifications."""
