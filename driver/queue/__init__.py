"""Rings and their contents: commands, reports, raw frames, transmit scheduling."""
