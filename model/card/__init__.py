"""Timing model of the card: decisions of the functional model, with latencies, widths and queues of the gateware."""
