"""Server of PCI functions by the vfio-user protocol: messages, DMA, configuration space, and a card as a function."""
