"""Switch: choice of the port, admission to the shared buffer, ECN marking, and the length of its queues over time."""

from weft.hdl.contract import wire

from ..machine_code import compiled, inlined
from ..wan.path.draw import uniform
from . import forwarding, pause
from .packets import ACK, CNP, CONTROL, DATA, DATA_PACKET, QUEUES, TRIMMED, discard, push

# Buffer in bytes; mark_from > mark_to: no marking.
NODE = [("host", "u1"), ("buffer", "i8"), ("used", "i8"), ("alpha", "f8"), ("mark_from", "i8"), ("mark_to", "i8"),
        ("mark_chance", "f8"), ("no_path", "i8"), ("trim", "u1"), *pause.NODE]
PORT = [("changed_at", "f8"), ("marked", "i8"), ("dropped", "i8"), ("queue_peak", "i8"), ("data_in", "i8"),
        ("trimmed", "i8"), *pause.PORT]
BINS = 4096             # of a port's queue lengths
_TRIMMED_BYTES = wire.line_bytes(forwarding.TRIM_BYTES)
MARKS = 0               # stream of random numbers
_spread, _admits, _mark_chance = map(inlined, (forwarding.spread, forwarding.admits, forwarding.mark_chance))


@inlined
def account(w, port):
    """Add the time since the last change to the bin of the port's queue length; call it before each change."""
    p, now = w.port[port], w.s.now
    length = w.queue[port * QUEUES + DATA].bytes
    w.lengths[port, min(BINS - 1, length * BINS // w.s.lengths_most)] += now - p.changed_at
    p.changed_at = now


@compiled
def path(w, node, to, tuple_hash):
    """Return the port towards a host: by hash, one of those on shortest paths whose links are up; -1: none is."""
    route, up = w.route[node, to], 0
    for k in range(route.first, route.first + route.count):
        up += w.port[w.hop[k]].up
    if up == 0:
        return -1
    at = _spread(tuple_hash, node) % up
    for k in range(route.first, route.first + route.count):
        if w.port[w.hop[k]].up:
            if at == 0:
                return w.hop[k]
            at -= 1
    return -1


@inlined
def _marks(w, node, length):
    """Return whether a packet that finds a data queue of this length is marked."""
    n = w.node[node]
    chance = _mark_chance(length, n.mark_from, n.mark_to, n.mark_chance)
    return chance >= 1.0 or (chance > 0.0 and uniform(w.random, MARKS) < chance)


@compiled
def admit(w, node, came, port, i):
    """Queue a packet that came through a port at another port of a switch, or drop it; return whether it is queued.

    A switch that pauses its neighbours gives a queue all of the free buffer.
    """
    n, p, packet = w.node[node], w.port[port], w.packet[i]
    control = packet.kind == ACK or packet.kind == CNP or packet.kind == TRIMMED
    length = w.queue[port * QUEUES + DATA].bytes
    admitted = _admits(packet.bytes, control or n.pause_from > 0, length, n.buffer - n.used, n.alpha)
    if not admitted and n.trim and packet.kind == DATA_PACKET:
        packet.kind, packet.bytes, control = TRIMMED, _TRIMMED_BYTES, True
        p.trimmed += 1
        admitted = _admits(packet.bytes, control, length, n.buffer - n.used, n.alpha)
    if not admitted:
        p.dropped += 1
        discard(w, i)
        return False
    n.used += packet.bytes
    if control:
        push(w, port, CONTROL, i)
        return True
    if _marks(w, node, length):
        packet.marked = 1
        p.marked += 1
    account(w, port)
    push(w, port, DATA, i)
    pause.take(w, node, came, i)
    p.data_in += 1
    p.queue_peak = max(p.queue_peak, length + packet.bytes)
    return True
