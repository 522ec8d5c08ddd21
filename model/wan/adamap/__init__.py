"""Rules of Adamap on arrays: window, builder and matcher of ``weft.model.functional``, with their timing."""
