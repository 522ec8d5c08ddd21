"""Knitting blocks that are still in use after a run."""


def missing_blocks(uses):
    """Return the number of blocks of the knitting buffer that are not on the free list."""
    return sum(uses.values()) - uses["free"]
