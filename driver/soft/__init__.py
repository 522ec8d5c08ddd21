"""RDMA in software, over nothing but frames in and frames out: what the card's offload is compared with."""
