"""SEND, READ and atomic operations, implemented with writes between the drivers of the two ends."""
