"""Base of objects that a ``with`` statement closes."""

from typing import Self


class Closing:
    """Object with ``close()``, which is called at the end of its ``with`` block."""

    def close(self) -> None:
        """Release the resources of the object."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
