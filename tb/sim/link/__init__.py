"""Ethernet link between two cards, the MACs at its ends, and captures."""
