"""Release of resources: objects that a ``with`` statement closes, and resources to release together."""

from collections.abc import Callable
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


class Release:
    """Calls that release resources, the last resource first: a light ``contextlib.ExitStack``.

    In a ``with`` block, an exception releases them, and so does the end of the block.
    """

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def callback(self, function: Callable[..., object], *arguments: object) -> None:
        """Add a call."""
        self._calls.append((function, arguments))

    def pop_all(self) -> "Release":
        """Return an object with all calls, which this one forgets."""
        taken = Release()
        taken._calls, self._calls = self._calls, []
        return taken

    def close(self) -> None:
        """Make all calls, whatever one raises; raise the first exception at the end."""
        error, calls = None, self._calls
        while calls:
            function, arguments = calls.pop()
            try:
                function(*arguments)
            except Exception as raised:
                error = error or raised
        if error is not None:
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
