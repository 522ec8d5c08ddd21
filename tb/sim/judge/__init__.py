"""Who says whether it went well: scoreboards, guards, and decoders that share no code with the card."""
