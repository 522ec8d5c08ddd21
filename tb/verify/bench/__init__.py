"""Benchmarks, and ``weft bench``, which runs them."""
