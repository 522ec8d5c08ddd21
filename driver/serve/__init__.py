"""Daemon for libibverbs.so.1: cards served to programs of other processes."""
