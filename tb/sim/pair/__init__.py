"""Two hosts with a card each: as RTL, as functional cards, as timed cards."""
