"""PCIe hosts of simulated cards, with their memory, latency and faults."""
