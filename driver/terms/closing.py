"""Objects that a ``with`` statement closes."""


class Closing:
    """An object with ``close()``, which the end of its ``with`` block calls."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
