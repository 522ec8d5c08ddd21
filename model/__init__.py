"""What the card must do (functional), and how long it takes."""
