"""What moves QPs: events and time in, doorbells and frames out."""
