"""Two programs on two hosts with one card each; a name selects the back end of the cards."""
