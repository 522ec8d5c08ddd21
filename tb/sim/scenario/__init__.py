"""Scenarios that run on functional cards, on timed cards and on the RTL, and the comparison of their results."""
