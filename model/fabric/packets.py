"""Packets of the simulation: a pool of records, and first-in first-out queues of them.

A port has three queues: CONTROL and DATA wait for transmission, LINE has the packets between the port and its peer.
"""

from ..machine_code import compiled, inlined
from . import pause, recovery

CONTROL, DATA, LINE = range(3)
QUEUES = 3
DATA_PACKET, ACK, CNP, PROBE, OTHER, TRIMMED = range(6)
# Of an ACK, `received` and `missing` are the receiver's, `number` and `sent_at` those of the acknowledged packet.
PACKET = [("at", "f8"), ("sent_at", "f8"), ("number", "i8"), ("received", "i8"), ("missing", "i8"), ("flow", "i4"),
          ("bytes", "i4"), ("next", "i4"), ("to", "i4"), ("kind", "u1"), ("marked", "u1"), ("ask", "u1"),
          *recovery.PACKET, *pause.PACKET]
QUEUE = [("head", "i4"), ("tail", "i4"), ("bytes", "i8"), ("count", "i8")]
STATE = [("free", "i4"), ("overflow", "u1"), ("packets_peak", "i8"), ("packets", "i8")]


@compiled
def new(w, kind, flow, to, size):
    """Return a packet; if there is none, the run ends with ``overflow``, and the packet is -1."""
    s = w.s
    i = s.free
    if i < 0:
        s.overflow = 1
        return -1
    p = w.packet[i]
    s.free = p.next
    s.packets += 1
    s.packets_peak = max(s.packets_peak, s.packets)
    p.kind, p.flow, p.to, p.bytes, p.marked, p.ask, p.came = kind, flow, to, size, 0, 0, -1
    return i


@inlined
def discard(w, i):
    """Return a packet to the pool."""
    w.packet[i].next = w.s.free
    w.s.free = i
    w.s.packets -= 1


@inlined
def push(w, port, kind, i):
    """Append a packet to a queue of a port."""
    q, p = w.queue[port * QUEUES + kind], w.packet[i]
    p.next = -1
    if q.head < 0:
        q.head = i
    else:
        w.packet[q.tail].next = i
    q.tail = i
    q.bytes += p.bytes
    q.count += 1


@inlined
def pop(w, port, kind):
    """Remove and return the oldest packet of a queue, or -1."""
    q = w.queue[port * QUEUES + kind]
    i = q.head
    if i >= 0:
        q.head = w.packet[i].next
        q.bytes -= w.packet[i].bytes
        q.count -= 1
    return i
