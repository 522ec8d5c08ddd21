"""Connection management of InfiniBand (IBTA 1.7, chapter 12) without I/O: independent of a card."""
