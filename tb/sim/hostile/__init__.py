"""Frames and attacks that a card must drop."""
