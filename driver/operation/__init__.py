"""SEND, READ and atomics, made of writes: what the two ends of a connection ask of each other."""
