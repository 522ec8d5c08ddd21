"""The card as the driver reaches it: registers, DMA memory, page table, interrupts."""
