"""User-space driver."""
