"""Registered memory as the card sees it."""
