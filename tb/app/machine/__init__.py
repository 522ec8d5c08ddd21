"""`weft machine`: cards as PCI devices of virtual machines."""
