"""Scoreboards, guards and decoders that check a run and share no code with the card."""
