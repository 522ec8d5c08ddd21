"""What the senders of all selective schemes do with an acknowledgement and with the name of a lost packet."""

from ...machine_code import compiled
from ..path.back import ACK
from ..path.sender import acknowledged, send_again


@compiled
def hear(w, m):
    """A message at the sender."""
    q = w.qp[m.qp]
    if m.kind == ACK:
        acknowledged(w, m.qp, m.a)
    elif m.a >= q.una:
        send_again(w, m.qp, m.a, 0)


@compiled
def expired(w, qp):
    """Nothing was acknowledged for long: the oldest packet again."""
    q = w.qp[qp]
    q.deadline = w.s.now + w.s.patience
    send_again(w, qp, q.una, 0)
