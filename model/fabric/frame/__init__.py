"""The same network for frames of real cards: functional, timed and RTL cards send through it."""
