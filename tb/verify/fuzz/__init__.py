"""Random and mutated frames: none raises, hangs, completes a request or writes outside its buffer."""
