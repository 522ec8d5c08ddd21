"""Programs on top of the verbs."""
