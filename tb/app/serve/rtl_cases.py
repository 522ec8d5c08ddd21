"""Served hosts on the RTL of two cards, in a simulator in a separate process.

The two processes communicate over a socket: the simulator sends sentences for the user, and the other process closes
the socket to end the service.
"""

import contextlib
import socket
import tempfile
import threading
from dataclasses import asdict, replace
from pathlib import Path

import cocotb
from cocotb.task import bridge

from weft.hdl.contract.params import preset
from weft.model.impairments import LinkConfig
from weft.tb.app.serve.rtl_world import RtlWorld, ServedCards
from weft.tb.app.serve.served import serve
from weft.tb.app.serve.settings import Settings
from weft.tb.sim.flow.bench import given
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.pair.two_cards import run_cards
from weft.tb.sim.pair.two_hosts import EnvConfig

RUN_LIMIT_S = 30 * 24 * 3600


class Line:
    """Simulator's end of the socket; it is true when the service must end."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)

    def say(self, sentence):
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(sentence.encode() + b"\n")

    def __bool__(self):
        try:
            return not self._socket.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True


class _Relay(threading.Thread):
    """Thread that passes sentences on, and closes the socket when the service must end."""

    def __init__(self, path, say):
        super().__init__(daemon=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen()
        self._say, self._ended, self._line = say, False, None

    def run(self):
        with contextlib.suppress(OSError):
            self._line, _ = self._listener.accept()
            if self._ended:
                self.end()
            with self._line.makefile() as sentences:
                for sentence in sentences:
                    self._say(sentence.rstrip("\n"))

    def end(self, *_):
        self._ended = True
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)


def serve_rtl(settings, say, on_end):
    """Serve hosts; ``on_end`` is called with a function that ends the service.

    Raises
    ------
    Failure
        If the simulation failed.
    """
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        path = str(Path(folder, "line"))
        relay = _Relay(path, say)
        relay.start()
        on_end(relay.end)
        settings = replace(settings, folder=str(Path(settings.folder).resolve()))
        try:
            run_cards(preset(settings.card), __file__, {"settings": asdict(settings), "line": path},
                      seed=number_of(settings.seed), timeout_s=RUN_LIMIT_S)
        except AssertionError as error:
            raise Failure(str(error)) from None
        relay.join(1)


def number_of(seed):
    """Return a seed for the simulator, which accepts only numbers."""
    return int(seed) if seed.isdecimal() else int.from_bytes(seed.encode()[:7], "little")


@cocotb.test()
async def served(dut):
    asked = given()
    settings, line = Settings(**asked["settings"]), Line(asked["line"])
    link = LinkConfig(delay_ns=settings.delay_ns, loss=settings.loss)
    env = ServedCards(dut, EnvConfig(link, link, vectors=preset(settings.card).msix_vectors), settings.seed,
                      names=settings.hosts, captures=settings.capture)
    await env.start()

    def until_the_end():
        world = RtlWorld(env, settings.hosts, delay_ns=settings.delay_ns, seed=settings.seed,
                         first=settings.first)
        serve(world, settings, line.say, line)

    await bridge(until_the_end)()
    env.finish()
