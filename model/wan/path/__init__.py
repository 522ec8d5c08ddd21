"""The path and both of its ends, shared by all schemes: line, losses, delays, messages back, and placement."""
