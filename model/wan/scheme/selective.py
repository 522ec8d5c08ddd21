"""Sender of the selective schemes: handles acknowledgements and the reports of single lost packets."""

from ...machine_code import compiled
from ..path.back import ACK
from ..path.sender import acknowledged, send_again


@compiled
def handle_control(w, m):
    """Process a message at the sender."""
    q = w.qp[m.qp]
    if m.kind == ACK:
        acknowledged(w, m.qp, m.a)
    elif m.a >= q.una:
        send_again(w, m.qp, m.a, 0)


@compiled
def expired(w, qp):
    """Send the oldest packet again after a time-out."""
    send_again(w, qp, w.qp[qp].una, 0)
