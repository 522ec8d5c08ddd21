"""Descriptor rings in host memory: readers, writers and the status block."""
