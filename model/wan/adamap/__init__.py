"""The rules of Adamap on arrays: window, builder, matcher as in ``weft.model.functional``, and the time around them."""
