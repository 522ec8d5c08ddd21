"""Where the frames of a software endpoint come from and go to."""
