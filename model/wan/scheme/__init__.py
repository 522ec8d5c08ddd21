"""Detection and recovery of losses: one file per scheme; ``dispatch`` selects among them."""
