"""Host, completer and memory around the PCIe subsystem."""
