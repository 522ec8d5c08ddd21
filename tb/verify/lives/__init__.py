"""Lives of Adamap nodes by the million: leaks and stale accepts."""
