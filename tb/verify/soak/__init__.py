"""Soaking: random runs over two real cards, by seed, with bins that have to fill."""
