"""Served hosts on the RTL of two cards, in a simulator in a separate process.

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

import cocotb
from cocotb.task import bridge

from weft.hdl.contract.params import preset
from weft.tb.app.serve.rtl_backend import RtlBackend, ServedCards
from weft.tb.app.serve.served import serve
from weft.tb.app.serve.settings import Settings
from weft.tb.sim.flow.bench import given
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.pair.two_cards import run_cards
from weft.tb.sim.pair.two_hosts import EnvConfig

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

    def __init__(self, path: str, report: Callable[[str], None]) -> None:
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

    def end(self, *_: object) -> None:
        """End the service, now or when the simulator has connected."""
        self._ended = True
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.send(None)


def serve_rtl(settings: Settings, report: Callable[[str], None],
              on_end: Callable[[Callable[..., None]], object]) -> None:
    """Serve hosts; pass a function that ends the service to ``on_end``. Raises Failure if the simulation failed."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        path = str(Path(folder, "line"))
        relay = _Relay(path, report)
        relay.start()
        on_end(relay.end)
        settings = replace(settings, folder=str(Path(settings.folder).resolve()))
        try:
            run_cards(preset(settings.card), __file__, {"settings": asdict(settings), "line": path},
                      seed=number_of(settings.seed), timeout_s=RUN_LIMIT_S)
        except AssertionError as error:
            raise Failure(str(error)) from None
        relay.join(1)


def number_of(seed: str) -> int:
    """Return a seed for the simulator, which accepts only numbers."""
    return int(seed) if seed.isdecimal() else int.from_bytes(seed.encode()[:7], "little")


@cocotb.test()
async def served(dut: Any) -> None:
    asked = given()
    settings, line = Settings(**asked["settings"]), Line(asked["line"])
    link = settings.config()
    env = ServedCards(dut, EnvConfig(link, link, vectors=preset(settings.card).msix_vectors), settings.seed,
                      names=settings.hosts, captures=settings.capture)
    await env.start()

    def until_the_end() -> None:
        backend = RtlBackend(env, settings.hosts, delay_ns=settings.delay_ns, seed=settings.seed,
                             first=settings.first)
        serve(backend, settings, line.report, line)

    await bridge(until_the_end)()
    env.finish()
