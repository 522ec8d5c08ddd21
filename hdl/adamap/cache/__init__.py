"""Head cache: nodes at the heads of lists, and how its entries are chained."""
