"""Node churn: Adamap nodes by the million, with checks for leaks and stale accepts."""
