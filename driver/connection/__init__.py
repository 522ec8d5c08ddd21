"""Connection management as InfiniBand has it (IBTA 1.7, chapter 12): messages in, messages and time out, no card."""
