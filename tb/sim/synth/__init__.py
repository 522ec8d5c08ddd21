"""From Verilog to size, estimated paths, place and route, and lint."""
