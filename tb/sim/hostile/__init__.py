"""Frames and attacks that a card must refuse."""
