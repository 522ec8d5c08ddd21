"""Parts that the blocks of the card share: streams, queues, arbiters, counters, CRC."""
