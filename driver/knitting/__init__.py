"""Knitting buffer: Adamap nodes, their blocks, and the allocation of blocks."""
