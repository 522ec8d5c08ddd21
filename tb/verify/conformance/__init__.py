"""Conformance of the driver: rdma-core's tests of pyverbs, which Debian's package python3-pyverbs contains."""
