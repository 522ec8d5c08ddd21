"""Memory of a real Linux process, as a card reaches it: by physical address, or through an IOMMU."""
