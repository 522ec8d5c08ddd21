"""What must happen, without time: the oracle of the scoreboards."""
