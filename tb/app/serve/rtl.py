"""Serving hosts on the RTL of two cards, in a simulator of its own process.

The two processes talk over a socket: sentences for a person come out of it, and that it is closed ends the service.
"""

import contextlib
import json
import socket
import tempfile
import threading
from dataclasses import asdict, replace
from pathlib import Path

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text

VARIABLE = "WEFT_SERVE"
RUN_LIMIT_S = 30 * 24 * 3600


class Line:
    """The end of the socket inside the simulator; it is true when the service is to end."""

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
    """Hands sentences on, and closes the socket when the service is to end."""

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
    """Serve until the function that ``on_end`` is called with is called.

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
        asked = json.dumps({"settings": asdict(settings), "line": path})
        try:
            simulate(verilog=two_cards_text(preset(settings.card)), top=TOP, name=f"two-cards-{settings.card}",
                     cases=Path(__file__).with_name("rtl_cases.py"), sim="verilator", optimize="run",
                     seed=number_of(settings.seed), env={VARIABLE: asked}, timeout_s=RUN_LIMIT_S)
        except AssertionError as error:
            raise Failure(str(error)) from None
        relay.join(1)


def number_of(seed):
    """A seed for the simulator, which knows numbers only."""
    return int(seed) if seed.isdecimal() else int.from_bytes(seed.encode()[:7], "little")
