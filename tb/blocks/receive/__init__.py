"""Tests of the receive room and its blocks."""
