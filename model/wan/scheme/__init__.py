"""Detection and recovery of losses: go-back-N, selective repeat, Adamap; ``dispatch`` selects among them."""
