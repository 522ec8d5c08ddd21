"""Shared network: switches with queues between many hosts, and flows under congestion control, compiled with numba."""
