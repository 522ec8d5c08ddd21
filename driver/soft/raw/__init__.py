"""The protocol of "Network RDMA Architecture Design": RDMA right above Ethernet, one endpoint a host."""
