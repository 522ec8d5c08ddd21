"""Return path: small messages of the receiver that arrive in order after a fixed delay, some of them lost.

The messages take no bandwidth in this model. ``a`` and ``b`` are the contents of a message, by its kind.
"""

from ...machine_code import compiled
from .draw import ACKS, uniform
from .queue import BACK, push

ACK, NACK, REPORT = range(3)
CONFIG = [("back_delay", "i8"), ("back_loss", "f8")]
COUNTS = [("messages_back", "i8"), ("messages_lost", "i8")]


@compiled
def answer(w, qp, kind, a, b, reliable):
    """Send a message to the sender; a ``reliable`` one stands for information that later messages would repeat."""
    s = w.s
    s.messages_back += 1
    if not reliable and s.back_loss > 0.0 and uniform(w.s.random, ACKS) < s.back_loss:
        s.messages_lost += 1
        return
    m = w.entry[push(w, BACK)]
    m.at, m.a, m.b, m.qp, m.kind = s.now + s.back_delay, a, b, qp, kind
