"""Sending side of a QP."""
