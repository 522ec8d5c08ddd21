"""Percentiles of what was measured."""

import math


def percentile(values, share):
    """The least of the values, which stand in order, that ``share`` of them do not exceed (the nearest rank)."""
    return values[math.ceil(round(share * len(values), 9)) - 1]
