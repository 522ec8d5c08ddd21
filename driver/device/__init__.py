"""Driver's access to the card: registers, DMA memory, page table, interrupts."""
