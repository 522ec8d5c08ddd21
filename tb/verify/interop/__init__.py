"""Real Linux as a peer: its software RDMA (rxe) in a QEMU guest, against the endpoint in software and the card."""
