"""Connection of event counters: from the block that sees an event to the counter memory.

A block that counts has ``COUNTS``, ``{name: width}`` of its counters of :data:`weft.hdl.contract.abi.COUNTERS`, and an
output ``count_<name>`` for each: an amount that is added in every cycle. It reports drops at ``drop``, a
:data:`DropEvent`. A subsystem has the ``COUNTS`` of its blocks and passes them on; so does the card, to
:class:`~weft.hdl.part.counters.Counters`.
"""

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

# A strobe and the `abi.Reason` of the drop.
DropEvent = wiring.Signature({"stb": Out(1), "reason": Out(8)})


def merged(*counts):
    """Merge the ``COUNTS`` of several blocks.

    Raises
    ------
    ValueError
        If two blocks count the same event.
    """
    every = {}
    for some in counts:
        if both := every.keys() & some:
            raise ValueError(f"counted twice: {', '.join(sorted(both))}")
        every |= some
    return every


def count_outputs(counts):
    """Return the signature members of a block with these ``COUNTS``."""
    return {f"count_{name}": Out(width) for name, width in counts.items()}


def pass_counts(m, blocks, parent):
    """Connect every count of the blocks to the count of the same name of the subsystem that contains them."""
    for block in blocks:
        m.d.comb += [getattr(parent, f"count_{name}").eq(getattr(block, f"count_{name}")) for name in block.COUNTS]
