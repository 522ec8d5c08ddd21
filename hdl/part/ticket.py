"""Tickets: every received packet gets the next one; what may wait for long extends it.

``placed_ticket`` of :class:`~weft.hdl.receive.place.Place` says which packet is the newest whose payload, and that of
all before it, was placed. Both are modulo 256.
"""

from amaranth.hdl import Signal

from .layouts import TICKET_WIDTH

EXTENDED_TICKET_WIDTH = 40      # of what waits; half as many packets may pass meanwhile, two hours of the smallest ones


def follow(m, placed, placed_ticket):
    """Extend ``placed_ticket`` into the register ``placed``, wider than it, one cycle later."""
    advance = Signal(TICKET_WIDTH)
    m.d.comb += advance.eq(placed_ticket - placed[:TICKET_WIDTH])
    m.d.sync += placed.eq(placed + advance)


def extended(m, placed, ticket, *, name="distance"):
    """A ticket within 127 of what was placed, as wide as ``placed``; ``name`` is that of a signal in between."""
    distance = Signal(TICKET_WIDTH, name=name)
    m.d.comb += distance.eq(ticket - placed[:TICKET_WIDTH])
    return (placed + distance.as_signed())[:len(placed)]
