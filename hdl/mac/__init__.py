"""MAC edge: AXI4-Stream on one side and beats on the other, in the card's clock domain or the MAC's."""
