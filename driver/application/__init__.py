"""Applications that use the verbs."""
