"""Formal specifications, and ``weft formal``, which proves them."""
