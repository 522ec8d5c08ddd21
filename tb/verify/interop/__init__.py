"""Interoperation with Linux: its software RDMA (rxe) in a QEMU guest, against the software endpoint and the card."""
