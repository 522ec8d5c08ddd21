"""Tests of the card's blocks, each by itself, in the rooms of ``hdl/``."""
