"""Functional model: the required behaviour without time. Scoreboards compare the card with it."""
