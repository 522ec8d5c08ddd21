"""Conformance suite in C for any libibverbs device: `suite.c` runs the cases that the other files define."""
