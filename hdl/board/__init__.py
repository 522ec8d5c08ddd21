"""Boards: the unchanged card with the vendor's blocks, for an Alveo U50."""
