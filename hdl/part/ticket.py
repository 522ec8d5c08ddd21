"""Tickets: sequence numbers of received packets, and their extension for items that wait for long.

``placed_ticket`` of :class:`~weft.hdl.receive.place.Place` is the ticket of the newest packet whose payload, and that
of all packets before it, was placed. Both are modulo 256.
"""

from amaranth.hdl import Signal

from .layouts import TICKET_WIDTH

# Width of the tickets of waiting items. Half of the range may pass while an item waits: two hours of smallest packets.
EXTENDED_TICKET_WIDTH = 40


def follow(m, placed, placed_ticket):
    """Extend ``placed_ticket`` into the wider register ``placed``, one cycle later."""
    advance = Signal(TICKET_WIDTH)
    m.d.comb += advance.eq(placed_ticket - placed[:TICKET_WIDTH])
    m.d.sync += placed.eq(placed + advance)


def extended(m, placed, ticket, *, name="distance"):
    """Return a ticket within 127 of the placed one, as wide as ``placed``.

    ``name`` is the name of an intermediate signal.
    """
    distance = Signal(TICKET_WIDTH, name=name)
    m.d.comb += distance.eq(ticket - placed[:TICKET_WIDTH])
    return (placed + distance.as_signed())[:len(placed)]
