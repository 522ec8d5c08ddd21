"""Percentiles of measured values."""

import math


def percentile(values, share):
    """Return the nearest-rank percentile of ``values``, which are sorted: ``share`` of them do not exceed it."""
    return values[math.ceil(round(share * len(values), 9)) - 1]
