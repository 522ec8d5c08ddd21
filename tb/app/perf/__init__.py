"""Performance tests in the form of linux-rdma's perftest: eight commands, one engine, on any back end."""
