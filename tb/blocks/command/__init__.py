"""Tests of the command processor."""
