"""Frames for benches of the receive path."""
