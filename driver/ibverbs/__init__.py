"""libibverbs.so.1 in C, through which unmodified RDMA programs use a served card."""
