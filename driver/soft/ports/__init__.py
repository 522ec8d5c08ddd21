"""Ports of a software endpoint: sources and sinks of frames."""
