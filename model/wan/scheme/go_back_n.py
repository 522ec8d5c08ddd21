"""Go-back-N, as in RoCE cards: the receiver drops packets out of order, and the sender goes back.

A NAK carries the expected PSN. The model is as favourable as possible: the receiver detects that the expected PSN was
lost another time from the number of times the sender went back (which no real packet carries), and sends another NAK
at once. Goodput with independent losses p and a round trip of m packets: ``(1 - p) / (1 - p + p m)`` of the payload
rate.
"""

from ...machine_code import compiled
from ..path.back import ACK, NACK, answer
from ..path.score import acknowledge, place
from ..path.sender import acknowledged, wake

QP = [("expected", "i8"), ("nak_rsn", "i8")]


@compiled
def arrive(w, p):
    """Process a packet at the receiver."""
    q = w.qp[p.qp]
    if p.psn == q.expected:
        place(w, p.qp, p.psn)
        q.expected += 1
        q.nak_rsn = -1
        acknowledge(w, p.qp, p.last != 0)
    elif p.psn > q.expected:
        if q.nak_rsn < p.rsn:
            q.nak_rsn = p.rsn
            answer(w, p.qp, NACK, q.expected, p.rsn, False)
    else:
        acknowledge(w, p.qp, True)


@compiled
def handle_control(w, m):
    """Process a message at the sender."""
    q = w.qp[m.qp]
    if m.kind == ACK:
        acknowledged(w, m.qp, m.a)
    elif m.b == q.rsn_sent and m.a >= q.una:
        acknowledged(w, m.qp, m.a)
        go_back(w, m.qp)


@compiled
def go_back(w, qp):
    """Continue with the oldest unacknowledged packet."""
    q = w.qp[qp]
    q.next = q.una
    q.rsn_sent += 1
    q.deadline = w.s.now + w.s.time_out
    wake(w, qp)
