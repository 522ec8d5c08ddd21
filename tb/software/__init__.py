"""The driver without RTL: its parts alone, and two drivers over functional cards."""
