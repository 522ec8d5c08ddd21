"""PCIe side of the card: vendor shim, DMA engines, MSI-X."""
