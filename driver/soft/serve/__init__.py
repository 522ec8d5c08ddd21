"""Applications of a software endpoint."""
