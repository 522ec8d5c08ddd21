"""Messages over a connection whose peer always has a receive posted: credit control, acknowledged by immediates."""
