"""Back end for hardware: PCI functions by address, through VFIO or sysfs; survey of the cards of a machine."""
