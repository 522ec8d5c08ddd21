"""The card in time beside the gateware: the same traffic and the same losses, and how far they are apart."""
