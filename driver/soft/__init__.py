"""RDMA in software, with frames as its only input and output: the baseline for the offload of the card."""
