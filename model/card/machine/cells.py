"""Numbers of the compiled cards as attributes of Python objects."""

import numpy as np


class Cells:
    """Numbers of one record of an array, by place: quicker than numpy's own way."""

    def __init__(self, array, place):
        flat, size = array.view(np.ndarray).reshape(-1), len(array.dtype.names)
        self.floats = memoryview(flat.view("f8"))[place * size:(place + 1) * size]
        self.numbers = memoryview(flat.view("i8"))[place * size:(place + 1) * size]


def cell(dtype, name):
    """A property: the number of that name in ``self.cells``, a record of ``dtype``."""
    at, kind = dtype.names.index(name), "floats" if dtype[name] == "f8" else "numbers"

    def get(self):
        return getattr(self.cells, kind)[at]

    def put(self, value):
        getattr(self.cells, kind)[at] = value

    return property(get, put)
