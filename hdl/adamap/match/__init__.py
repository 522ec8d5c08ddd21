"""Matcher: retransmissions, the holes that they fill, and retirement of nodes."""
