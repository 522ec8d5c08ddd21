"""Save files for GTKWave that make waves readable."""
