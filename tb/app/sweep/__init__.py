"""Sweeps of wide-area experiments and of runs of two cards: ``weft sweep``."""
