"""Size, estimated paths, place and route, and lint of the generated Verilog."""
