"""Contract between hardware and software: registers, layouts, packets, parameters; plain Python."""
