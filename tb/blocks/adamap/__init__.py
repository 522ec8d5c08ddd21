"""Tests of the Adamap room and its blocks."""
