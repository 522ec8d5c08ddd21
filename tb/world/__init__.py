"""What stands around two cards: hosts, PCIe, MACs, and the link that loses packets."""
