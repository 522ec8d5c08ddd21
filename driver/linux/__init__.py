"""Memory of a Linux process for a card, by physical address or through an IOMMU."""
