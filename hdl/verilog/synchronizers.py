"""Attribute of the registers of synchronisers, for synthesis and placement by a vendor's tool."""

from amaranth.lib.cdc import AsyncFFSynchronizer, FFSynchronizer


def mark_synchronizers(fragment):
    """Give ``ASYNC_REG`` to the registers of each synchroniser of an elaborated design.

    AMD's synthesis then neither duplicates them nor turns them into a shift register, and the placer puts them side by
    side. Constraints that are read after synthesis would come too late for the former.
    """
    if any(isinstance(origin, (FFSynchronizer, AsyncFFSynchronizer)) for origin in fragment.origins or ()):
        for domain, statements in fragment.statements.items():
            if domain != "comb":
                for signal in statements._lhs_signals():
                    signal.attrs["ASYNC_REG"] = "TRUE"
    for subfragment, *_ in fragment.subfragments:
        mark_synchronizers(subfragment)
