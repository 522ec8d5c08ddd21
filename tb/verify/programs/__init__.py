"""Unmodified RDMA programs on served hosts: the table of programs, hostile clients, kills."""
