"""Memory of a real process: the kernel's own interfaces where this machine has them, and a card's model over it."""
