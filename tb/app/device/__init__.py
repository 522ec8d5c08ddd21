"""Device tools: device attributes, counters, and the register map."""
