"""Packet-level experiments at the scale of wide-area networks, Adamap beside its rivals, compiled with numba."""
