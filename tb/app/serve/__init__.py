"""`weft serve`: hosts with cards for unmodified programs, and environments for these programs."""
