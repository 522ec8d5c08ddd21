"""Tests of the transmit room and its blocks."""
