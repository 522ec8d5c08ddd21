"""The card in time: the decisions of the functional model, with the latencies, widths and queues of the gateware."""
