"""PCIe faults injected by number into the PCIe subsystem."""
