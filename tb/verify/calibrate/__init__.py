"""Calibration of the timing model: differences to the gateware under the same traffic and losses."""
