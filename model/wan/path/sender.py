"""Sender, shared by all schemes: retransmissions before probes, probes before new packets, QPs in rotation.

A QP is in the queue READY while it may send a new packet. Retransmissions of all QPs wait in one queue, in the order
of their requests.
"""

from ...machine_code import compiled, inlined
from .line import AGAIN, ORIGINAL, PROBE, REQUEST, transmit
from .queue import PROBES, READY, RESENDS, front, pop, push

QP = [("next", "i8"), ("fresh", "i8"), ("una", "i8"), ("total", "i8"), ("sent_at", "i8"), ("deadline", "i8"),
      ("done_at", "i8"), ("again_count", "i8"), ("ready", "u1"), ("probe_due", "u1"), ("in_probes", "u1")]
CONFIG = [("qps", "i8"), ("outstanding_max", "i8"), ("message_packets", "i8"),
          ("time_out", "i8"), ("marker", "i8")]
STATE = [("now", "i8"), ("done", "i8")]
COUNTS = [("idle_slots", "i8"), ("limited", "i8"), ("expiries", "i8"), ("not_needed", "i8")]


@inlined
def may_send(w, qp):
    """Return whether a QP has a new packet and may send it."""
    q = w.qp[qp]
    return q.next < q.total and q.next - q.una < w.s.outstanding_max


@compiled
def wake(w, qp):
    """Put a QP that may send into the queue READY, unless it is there."""
    q = w.qp[qp]
    if not q.ready and may_send(w, qp):
        q.ready = 1
        w.entry[push(w, READY)].qp = qp


@compiled
def _queue_again(w, qp, psn, rsn, kind):
    e = w.entry[push(w, RESENDS)]
    e.qp, e.a, e.b, e.kind = qp, psn, rsn, kind
    w.qp[qp].again_count += 1


@compiled
def send_again(w, qp, psn, rsn):
    """Queue a retransmission."""
    _queue_again(w, qp, psn, rsn, AGAIN)


@compiled
def ask(w, qp, rsn):
    """Queue a request for the loss report that begins with an RSN."""
    _queue_again(w, qp, 0, rsn, REQUEST)


@compiled
def probe(w, qp):
    """Queue a probe of this QP before any new packet."""
    q = w.qp[qp]
    q.probe_due = 1
    if not q.in_probes:
        q.in_probes = 1
        w.entry[push(w, PROBES)].qp = qp


@compiled
def acknowledged(w, qp, cum):
    """Process the acknowledgement of every PSN below ``cum``."""
    s, q = w.s, w.qp[qp]
    if cum <= q.una:
        return
    q.una = cum
    q.next = max(q.next, cum)
    q.deadline = s.now + w.s.time_out
    if cum == q.total and q.done_at < 0:
        q.done_at = s.now
        s.done += 1
    wake(w, qp)


@inlined
def _sent(w, qp):
    q = w.qp[qp]
    q.deadline = w.s.now + w.s.time_out
    if w.s.marker and not q.ready and q.again_count == 0:
        probe(w, qp)


@inlined
def _send_again(w):
    """Use this slot for the oldest retransmission or request; return false if there is none."""
    s = w.s
    while front(w, RESENDS) >= 0:
        e = w.entry[front(w, RESENDS)]
        pop(w, RESENDS)
        w.qp[e.qp].again_count -= 1
        if e.kind == AGAIN and e.a < w.qp[e.qp].una:
            s.not_needed += 1
            continue
        transmit(w, e.qp, e.a, e.b, e.kind, (e.a + 1) % s.message_packets == 0)
        if e.kind == AGAIN:
            _sent(w, e.qp)
        return True
    return False


@inlined
def _send_probe(w):
    """Use this slot for a probe; return false if none is due."""
    while front(w, PROBES) >= 0:
        qp = w.entry[front(w, PROBES)].qp
        pop(w, PROBES)
        q = w.qp[qp]
        q.in_probes = 0
        if q.probe_due and q.una < q.next:
            q.probe_due = 0
            transmit(w, qp, q.next, q.rsn_sent, PROBE, 0)
            q.deadline = w.s.now + w.s.time_out
            return True
    return False


@inlined
def _send_new(w):
    """Use this slot for a new packet; return its QP, or -1."""
    s = w.s
    while front(w, READY) >= 0:
        qp = w.entry[front(w, READY)].qp
        pop(w, READY)
        q = w.qp[qp]
        q.ready = 0
        if may_send(w, qp):
            psn = q.next
            q.next += 1
            transmit(w, qp, psn, q.rsn_sent, ORIGINAL, q.next == q.total or q.next % s.message_packets == 0)
            wake(w, qp)
            s.limited += not q.ready and q.next < q.total
            _sent(w, qp)
            return qp
    return -1


@inlined
def send(w):
    """Use this slot; return the QP of a new packet, or -1."""
    if _send_again(w) or _send_probe(w):
        return -1
    qp = _send_new(w)
    w.s.idle_slots += qp < 0
    return qp
