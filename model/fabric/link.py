"""Links: transmission, loss, delay, arrival, and cuts. Each direction belongs to the port that sends."""

from ..machine_code import compiled, inlined
from ..wan.path.draw import uniform
from .events import ARRIVED, SENT, schedule
from .packets import CONTROL, DATA, LINE, QUEUES, discard, pop, push
from .pause import release
from .switch import account

PORT = [("node", "i4"), ("peer", "i4"), ("rate", "f8"), ("delay", "f8"), ("jitter", "f8"), ("loss", "f8"),
        ("burst_enter", "f8"), ("burst_leave", "f8"), ("burst_bad", "u1"), ("up", "u1"), ("busy", "u1"), ("due", "u1"),
        ("current", "i4"), ("last_arrival", "f8"), ("sent", "i8"), ("sent_bytes", "i8"), ("lost", "i8"), ("cut", "i8")]
LOSSES, JITTER = 1, 2      # streams of random numbers


@inlined
def begin(w, port, i):
    """Transmit a packet; the port is idle."""
    p = w.port[port]
    p.busy, p.current = 1, i
    schedule(w, w.s.now + w.packet[i].bytes / p.rate, SENT, port)


@compiled
def next_of_switch(w, port):
    """Transmit the next packet of a switch's port, control frames first, unless it is busy, paused or down."""
    p = w.port[port]
    if p.busy or not p.up:
        return
    i = pop(w, port, CONTROL)
    if i < 0 and not p.paused and w.queue[port * QUEUES + DATA].head >= 0:
        account(w, port)
        i = pop(w, port, DATA)
    if i >= 0:
        w.node[p.node].used -= w.packet[i].bytes
        release(w, p.node, i)
        begin(w, port, i)


@inlined
def _lost(w, p):
    """Advance the loss patterns by a frame and return whether it is lost."""
    gone = p.loss > 0.0 and uniform(w.random, LOSSES) < p.loss
    if p.burst_enter > 0.0:
        change = p.burst_leave if p.burst_bad else p.burst_enter
        if uniform(w.random, LOSSES) < change:
            p.burst_bad = 1 - p.burst_bad
        gone = gone or p.burst_bad == 1
    return gone


@compiled
def sent(w, port):
    """End a transmission: the packet is on the line now, unless it is lost."""
    p = w.port[port]
    i = p.current
    p.busy = 0
    p.sent += 1
    p.sent_bytes += w.packet[i].bytes
    if not p.up:
        p.cut += 1
        discard(w, i)
        return
    if _lost(w, p):
        p.lost += 1
        discard(w, i)
        return
    at = w.s.now + p.delay
    if p.jitter > 0.0:
        at = max(p.last_arrival, at + p.jitter * uniform(w.random, JITTER))
        p.last_arrival = at
    w.packet[i].at = at
    push(w, port, LINE, i)
    if not p.due:
        p.due = 1
        schedule(w, at, ARRIVED, port)


@compiled
def arrived(w, port):
    """Return the packet that arrives now, or -1 if the link lost it meanwhile; arrange for the next one."""
    p, q = w.port[port], w.queue[port * QUEUES + LINE]
    i = -1
    if q.head >= 0 and w.packet[q.head].at <= w.s.now:
        i = pop(w, port, LINE)
    p.due = q.head >= 0
    if p.due:
        schedule(w, w.packet[q.head].at, ARRIVED, port)
    return i


@compiled
def cut(w, port):
    """Take one direction of a link down: what is on it or waits for it is lost."""
    p = w.port[port]
    p.up = 0
    account(w, port)
    for kind in (CONTROL, DATA, LINE):
        i = pop(w, port, kind)
        while i >= 0:
            if kind != LINE and not w.node[p.node].host:
                w.node[p.node].used -= w.packet[i].bytes
                release(w, p.node, i)
            p.cut += 1
            discard(w, i)
            i = pop(w, port, kind)
