"""The rings and what travels in them: commands, reports, raw frames, turns to send."""
