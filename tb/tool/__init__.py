"""What users of rdma-core look at: the device, and its counters."""
