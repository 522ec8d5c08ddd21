"""RDMA CM: connections by IP address and port, with the names of ``pyverbs.cmid``."""
