"""Matcher: matches retransmissions with holes, marks the holes, and retires nodes."""
