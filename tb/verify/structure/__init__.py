"""Structure of the source tree: layers, imports, sizes."""
