"""Random and mutated frames: whatever arrives, nothing raises, hangs, completes or is written beside."""
