"""Documents drawn from the code."""
