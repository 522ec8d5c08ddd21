"""Event loop of a fabric."""

from pathlib import Path
from typing import Any

import weft.driver.congestion

from ..machine_code import compiled, entries
from . import background, pause
from .events import ARRIVED, BACKGROUND, EXPIRED, PACED, PAUSE, SENT, remove_first
from .host import IDLE, expired, next_of_host, receive, wake
from .link import arrived, cut, next_of_switch, sent
from .packets import OTHER, discard
from .switch import account, admit, path

_FOLDERS = (Path(__file__).parent, Path(__file__).parent.parent / "wan/path", Path(weft.driver.congestion.__path__[0]))
CHANGE = [("port", "i4"), ("up", "u1")]

entry = entries((file for folder in _FOLDERS for file in sorted(folder.glob("*.py"))), nogil=True)


@compiled
def _next(w, port):
    if w.node[w.port[port].node].host:
        next_of_host(w, port)
    else:
        next_of_switch(w, port)


@compiled
def _forward(w, node, came, i):
    """Queue a packet that came through a port at one of a switch towards its destination."""
    p = w.packet[i]
    port = path(w, node, p.to, w.source[p.flow].hash if p.kind == OTHER else w.flow[p.flow].hash)
    if port < 0:
        w.node[node].no_path += 1
        discard(w, i)
    elif admit(w, node, came, port, i):
        next_of_switch(w, port)


@compiled
def _arrive(w, port):
    """Pass a packet that has reached the end of a link to the node there."""
    i = arrived(w, port)
    if i < 0:
        return
    node = w.port[port].peer
    if w.node[node].host:
        receive(w, i)
    else:
        _forward(w, node, port, i)


@compiled
def _change(w, index):
    """Take a direction of a link down or up."""
    port, up = w.change[index].port, w.change[index].up
    if up:
        w.port[port].up = 1
        _next(w, port)
    else:
        cut(w, port)


@entry
def run(w: Any, until: float) -> None:
    """Advance to the time ``until`` in nanoseconds, or until there is no space for a packet."""
    s = w.s
    while s.events > 0 and w.event[0].at <= until and s.overflow == 0:
        e = w.event[0]
        s.now, kind, index = e.at, e.kind, e.index
        remove_first(w)
        if kind == SENT:
            sent(w, index)
            _next(w, index)
        elif kind == ARRIVED:
            _arrive(w, index)
        elif kind == PACED:
            w.flow[index].state = IDLE
            wake(w, index)
            next_of_host(w, w.flow[index].port)
        elif kind == EXPIRED:
            expired(w, index)
        elif kind == BACKGROUND:
            background.send(w, index)
        elif kind == PAUSE:
            if pause.arrives(w, index):
                _next(w, index)
        else:
            _change(w, index)
    s.now = until
    for port in range(len(w.port)):
        account(w, port)
