"""Software RDMA: its protocols over links that lose, reorder and repeat frames."""
