"""Benchmarks: what is measured, and ``weft bench``, which shows it."""
