"""Protocol of "Network RDMA Architecture Design": RDMA directly above Ethernet, one endpoint per host."""
