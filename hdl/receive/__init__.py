"""Receive path: MAC to host memory."""
