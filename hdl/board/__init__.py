"""Boards: the unchanged card between the blocks of a vendor, for an Alveo U50."""
