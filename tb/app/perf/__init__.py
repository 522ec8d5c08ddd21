"""Tests of a connection as linux-rdma's perftest has them: eight commands, one engine, on any back end."""
