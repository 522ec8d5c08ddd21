"""Prefetcher: reads of nodes ahead from host memory, and the work list."""
