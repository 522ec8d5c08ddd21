"""Conformance: a suite in C for any libibverbs device, and rdma-core's tests of pyverbs against the driver."""
