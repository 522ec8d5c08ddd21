"""Packet-level experiments on wide-area paths: Adamap and other recovery schemes, compiled with numba."""
