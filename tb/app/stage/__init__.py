"""Two programs on two hosts with a card each: on functional cards, on the simulated RTL, by one name."""
