"""Models of the card: its required behaviour (functional), and its timing."""
