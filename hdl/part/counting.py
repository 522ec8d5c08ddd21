"""How events get from the block that sees them to the counters.

A block that counts has ``COUNTS``, ``{name: width}`` of its counters of :data:`weft.hdl.contract.abi.COUNTERS`, and an
output ``count_<name>`` for each: an amount that is added in every cycle. What it refuses it tells at ``refuse``, a
:data:`Refusal`. A room has the ``COUNTS`` of its blocks and passes them on; so does the card, to
:class:`~weft.hdl.part.counters.Counters`.
"""

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

# A strobe, and the abi.Reason.
Refusal = wiring.Signature({"stb": Out(1), "reason": Out(8)})


def merged(*counts):
    """The ``COUNTS`` of several blocks as one.

    Raises
    ------
    ValueError
        If two blocks count the same.
    """
    every = {}
    for some in counts:
        if both := every.keys() & some:
            raise ValueError(f"counted twice: {', '.join(sorted(both))}")
        every |= some
    return every


def count_outputs(counts):
    """Signature members of a block with these ``COUNTS``."""
    return {f"count_{name}": Out(width) for name, width in counts.items()}


def pass_counts(m, blocks, room):
    """Connect every count of the blocks with that of the same name of what they are in."""
    for block in blocks:
        m.d.comb += [getattr(room, f"count_{name}").eq(getattr(block, f"count_{name}")) for name in block.COUNTS]
