"""Head cache: nodes at the heads of lists, and the links between its entries."""
