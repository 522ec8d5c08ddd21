"""Prefetcher: reads nodes ahead from host memory; its work list."""
