"""Priority-based flow control: a switch pauses the data of a port that has filled too much of its buffer.

Each port has the bytes that came through it and wait in the buffer of the switch at its end. From ``pause_from`` bytes
on the switch pauses the port, until less than ``pause_until`` is left; the signal takes the link's delay. A change
that follows within that delay takes effect with the one before it. Control frames are never paused.
"""

from ..machine_code import compiled, inlined
from . import forwarding
from .events import PAUSE, schedule

NODE = [("pause_from", "i8"), ("pause_until", "i8")]       # pause_from 0: none
PORT = [("held", "i8"), ("pausing", "u1"), ("paused", "u1"), ("pause_due", "u1"), ("pauses", "i8")]
PACKET = [("came", "i4")]       # port through which a queued packet came; -1: not counted
_pauses = inlined(forwarding.pauses)


@compiled
def _signal(w, port, pausing):
    p = w.port[port]
    p.pausing = pausing
    if not p.pause_due:
        p.pause_due = 1
        schedule(w, w.s.now + p.delay, PAUSE, port)


@inlined
def _count(w, node, came, change):
    """Count bytes that enter or leave the buffer of a switch."""
    n, p = w.node[node], w.port[came]
    p.held += change
    pausing = _pauses(p.held, p.pausing == 1, n.pause_from, n.pause_until)
    if pausing != (p.pausing == 1):
        _signal(w, came, pausing)


@inlined
def take(w, node, came, i):
    """Count a packet that a switch queues."""
    w.packet[i].came = came
    _count(w, node, came, w.packet[i].bytes)


@inlined
def release(w, node, i):
    """Count a packet that leaves the buffer of a switch."""
    came = w.packet[i].came
    if came >= 0:
        _count(w, node, came, -w.packet[i].bytes)


@inlined
def arrives(w, port):
    """Apply the newest signal to a port; return whether it may send again."""
    p = w.port[port]
    p.pause_due = 0
    changed = p.paused != p.pausing
    p.paused = p.pausing
    p.pauses += changed and p.paused
    return changed and not p.paused
