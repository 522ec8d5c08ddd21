"""As DCP: a switch that drops a packet forwards its header, which tells the receiver at once what was lost.

No bitmap is needed; the receiver counts packets per message (32 bytes per QP). A share ``header_loss`` of the headers
gets lost, too; then the whole message is sent again after ``due_slots``. Favourable for a wide-area path, where loss is
often corruption and no switch knows of it: ``header_loss`` 1 shows that.
"""

from ...machine_code import compiled
from ..path.back import NACK, answer
from ..path.draw import HEADER, uniform
from ..path.line import AGAIN, ORIGINAL, PROBE
from ..path.score import acknowledge, place
from .deadlines import expect

CONFIG = [("header_loss", "f8")]


@compiled
def vanish(w, p):
    """The header of a packet that was dropped arrives, perhaps."""
    if (p.kind == ORIGINAL or p.kind == AGAIN) and uniform(w.s.random, HEADER) >= w.s.header_loss:
        answer(w, p.qp, NACK, p.psn, 0, True)


@compiled
def sent(w, qp, psn):
    """A new packet left: the message it ends is to be there in time."""
    s, q = w.s, w.qp[qp]
    if q.next == q.total or q.next % s.message_packets == 0:
        first = psn - psn % s.message_packets
        expect(w, qp, first, psn + 1 - first)


@compiled
def arrive(w, p):
    """A packet at the receiver."""
    if p.kind != PROBE:
        place(w, p.qp, p.psn)
    acknowledge(w, p.qp, p.last != 0 or p.kind == PROBE)
