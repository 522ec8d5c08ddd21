"""Linux guests of QEMU with simulated cards (``weft linux``), and hostile machines against the server of the cards."""
