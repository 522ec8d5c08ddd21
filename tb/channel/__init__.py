"""The channel alone: every state of two ends with small capacities, and messages over a connection in memory."""
