"""Mutation testing: small faults in the gateware, each of which the tests of its subsystem must detect."""
