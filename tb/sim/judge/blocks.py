"""The knitting blocks that a run leaves."""


def missing_blocks(uses):
    """Blocks of the knitting buffer that are not on the free list."""
    return sum(uses.values()) - uses["free"]
