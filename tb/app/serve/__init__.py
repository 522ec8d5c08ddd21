"""`weft serve`: hosts with cards for unmodified programs, what runs on them, and the tests of both."""
