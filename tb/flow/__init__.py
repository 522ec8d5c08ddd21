"""From a component to a verdict: Verilog, simulators, clock, streams, lint, size."""
