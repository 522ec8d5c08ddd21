"""Reserved fields of what a driver writes: nobody may look at them, so benches fill them with anything."""


def junk(layout, rng):
    """Random values of the reserved fields of a contract layout, for its ``pack``."""
    return {field.name: rng.getrandbits(field.width) for field in layout.fields if field.name.startswith("_r")}
