"""The path and its two ends, as all schemes share them: line, losses, delays, what comes back, what has been placed."""
