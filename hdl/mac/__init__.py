"""MAC edge: AXI4-Stream on one side and beats on the other, at the card's clock or at a clock of the MAC's own."""
