"""Waves made readable: save files for GTKWave."""
