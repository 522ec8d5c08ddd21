"""The driver under rdma-core's own tests of pyverbs: Debian's package python3-pyverbs has them."""
