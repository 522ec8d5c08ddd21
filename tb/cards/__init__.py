"""Two real cards under their drivers: crossings, losses, resets, bad input."""
