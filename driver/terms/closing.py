"""Base of objects that a ``with`` statement closes."""


class Closing:
    """Object with ``close()``, which is called at the end of its ``with`` block."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
