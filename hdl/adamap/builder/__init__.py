"""Node builder: collects holes into nodes with the densest encoding."""
