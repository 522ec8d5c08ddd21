"""What both ends of a connection agree on: PSNs, packets, control frames, time."""
