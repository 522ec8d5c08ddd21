"""Back end for hardware: PCI functions by address, through VFIO or sysfs; survey of what is there and what is missing."""
