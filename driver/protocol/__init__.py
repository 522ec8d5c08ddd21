"""Protocol between the two ends of a connection: PSNs, packets, control frames, timers."""
