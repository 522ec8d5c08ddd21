"""The knitting buffer under pressure, on functional cards: goodput with too few blocks.

``adamap_pool_goodput_*`` is the goodput with a pool of that share of the peak demand, relative to a pool that suffices,
in functional time. Demand is what the nodes of a transfer take at most when nobody has to wait.
"""

from weft.tb.sim.flow.figures import Row
from weft.tb.verify.bench.small_pools import pools, squeezed


def measure(_progress):
    """The rows."""
    sizes = pools()
    rows, full = [], None
    for name, blocks in sizes.items():
        sent, received, *_ = squeezed(blocks)
        goodput = 8 * sent["bytes"] / sent["nanoseconds"]
        full = full or goodput
        rows += [Row(f"adamap_pool_goodput_{name}", "", goodput / full), Row(f"adamap_pool_blocks_{name}", "", blocks),
                 Row(f"adamap_pool_waited_holes_{name}", "", received.get("receiver_waited", 0))]
    return rows
