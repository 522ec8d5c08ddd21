"""Sweeps of wide-area experiments: ``weft sweep``."""
