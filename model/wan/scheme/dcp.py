"""DCP: a switch that drops a packet forwards its header, which notifies the receiver of the loss at once.

No bitmap is needed; the receiver counts packets per message (32 bytes per QP). A share ``header_loss`` of the headers
is lost, too; then the whole message is sent again after ``due_slots``. The model favours DCP on a wide-area path, where
loss is often corruption that no switch can report: ``header_loss`` 1 shows that case.
"""

from ...machine_code import compiled
from ..path.back import NACK, answer
from ..path.draw import HEADER, uniform
from ..path.line import AGAIN, ORIGINAL
from .deadlines import expect

CONFIG = [("header_loss", "f8")]


@compiled
def vanish(w, p):
    """Process the header of a dropped packet, which arrives unless it is lost, too."""
    if (p.kind == ORIGINAL or p.kind == AGAIN) and uniform(w.s.random, HEADER) >= w.s.header_loss:
        answer(w, p.qp, NACK, p.psn, 0, True)


@compiled
def sent(w, qp, psn):
    """Set the deadline of the message that a new packet ends, if it ends one."""
    s, q = w.s, w.qp[qp]
    if q.next == q.total or q.next % s.message_packets == 0:
        first = psn - psn % s.message_packets
        expect(w, qp, first, psn + 1 - first)
