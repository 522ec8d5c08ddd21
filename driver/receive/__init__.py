"""Receiving side of a QP."""
