"""Unmodified RDMA programs on served hosts: table of programs, hostile clients, killed programs."""
