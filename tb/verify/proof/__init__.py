"""Formal specifications, and ``weft formal``, which decides them."""
