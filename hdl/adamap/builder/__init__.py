"""Node builder: holes become nodes in the best encoding."""
