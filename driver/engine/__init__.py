"""Event loop of a card and its QPs: events and time in, doorbells and frames out."""
