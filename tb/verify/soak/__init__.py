"""Soak: random runs of two RTL cards, on a line or a network, by seed, with coverage bins to fill."""
