"""Reserved fields that a driver writes: hardware must ignore them, so benches fill them with random bits."""


def junk(layout, rng):
    """Return random values of the reserved fields of a contract layout, for its ``pack``."""
    return {field.name: rng.getrandbits(field.width) for field in layout.fields if field.name.startswith("_r")}
