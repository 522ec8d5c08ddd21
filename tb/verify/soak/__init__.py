"""Soak: random runs of two RTL cards, by seed, with coverage bins to fill."""
