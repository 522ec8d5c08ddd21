"""Messages over a connection whose peer always has a receive posted: credits, acknowledged by immediates."""
