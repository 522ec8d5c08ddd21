"""Connection management of InfiniBand (IBTA 1.7, chapter 12), sans I/O: messages and time in, messages out, no card."""
