"""The board around the card: crossings of clocks, registers, and what its files say to a vendor's tools."""
