"""Service by a simulator in a separate process.

The two processes communicate over a socket: the simulator sends sentences for the user, and the other process sends a
word to end the service.
"""

import contextlib
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.pair.two_cards import run_cards

RUN_LIMIT_S = 30 * 24 * 3600


class Line:
    """Simulator's end of the socket; it is true when the service must end."""

    def __init__(self, path: str) -> None:
        self._connection = Client(path, "AF_UNIX")

    def report(self, sentence: str) -> None:
        with contextlib.suppress(OSError):
            self._connection.send(sentence)

    def __bool__(self) -> bool:
        return self._connection.poll()      # also true if the other process ended


class _Relay(threading.Thread):
    """Thread that passes sentences on, until the simulator ends."""

    def __init__(self, path: str, report: Callable[[str], object]) -> None:
        super().__init__(daemon=True)
        self._listener, self._report, self._ended = Listener(path, "AF_UNIX"), report, False
        self._connection: Any = None

    def run(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._connection = self._listener.accept()
            if self._ended:
                self.end()
            while True:
                self._report(self._connection.recv())
        self._listener.close()

    def end(self, *_: object) -> None:
        """End the service, now or when the simulator has connected."""
        self._ended = True
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.send(None)


def serve_by_simulator(bench: str, settings: Any, report: Callable[[str], object],
                       on_end: Callable[[Callable[..., None]], object]) -> Any:
    """Run the file ``bench`` on two cards, and return what it leaves.

    Its settings are ``settings``, those of the service, and ``line``, for :class:`Line`. A function that ends the
    service is passed to ``on_end``. Raises Failure if the simulation failed.
    """
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        path = str(Path(folder, "line"))
        relay = _Relay(path, report)
        relay.start()
        on_end(relay.end)
        settings = replace(settings, folder=str(Path(settings.folder).resolve()))
        try:
            left = run_cards(preset(settings.card), bench, {"settings": asdict(settings), "line": path},
                             seed=number_of(settings.seed), timeout_s=RUN_LIMIT_S)
        except AssertionError as error:
            raise Failure(str(error)) from None
        relay.join(1)
        return left


def number_of(seed: str) -> int:
    """Return a seed for the simulator, which accepts only numbers."""
    return int(seed) if seed.isdecimal() else int.from_bytes(seed.encode()[:7], "little")
