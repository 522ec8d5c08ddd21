"""libibverbs.so.1 of our own, in C: unmodified RDMA programs reach a served card through it."""
