"""The main job: ``weft sim``."""
