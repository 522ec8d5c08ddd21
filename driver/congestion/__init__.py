"""Congestion control, sans I/O: events of a connection in, a rate and a limit of bytes in flight out."""
