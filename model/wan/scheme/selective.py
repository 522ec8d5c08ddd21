"""Selective repeat: one sender for the schemes that differ in the detection of losses.

IRN and MELO infer losses from the order of transmission, DCP gets the headers of dropped packets, the timer-only scheme
waits for deadlines, and an oracle knows every loss.
"""

from ...machine_code import compiled
from ..path.back import ACK, NACK, answer
from ..path.draw import HEADER, uniform
from ..path.line import AGAIN, ORIGINAL, PROBE
from ..path.queue import DUE, due, pop, push
from ..path.score import acknowledge, place, seen
from ..path.sender import acknowledged, send_again

QP = [("came_at", "i8"), ("pool_blocks", "i8"), ("pool_top", "i8")]
CONFIG = [("due_slots", "i8"), ("header_loss", "f8"), ("pool_block_bits", "i8"), ("pool_size", "i8")]
STATE = [("pool_used", "i8")]
COUNTS = [("pool_peak", "i8"), ("pool_drops", "i8")]


@compiled
def handle_control(w, m):
    """Process an acknowledgement or the report of a lost packet at the sender."""
    q = w.qp[m.qp]
    if m.kind == ACK:
        acknowledged(w, m.qp, m.a)
    elif m.a >= q.una:
        send_again(w, m.qp, m.a, 0)


@compiled
def expired(w, qp):
    """Send the oldest packet again after a time-out."""
    send_again(w, qp, w.qp[qp].una, 0)


@compiled
def report_gap(w, p):
    """Report to the sender, oldest first, the packets that its QP sent between the newest received one and ``p``.

    A missing packet that was sent before a received one is lost. No scheme can detect more on a path that keeps order:
    the loss of a retransmission is detected, too, half a round trip after its transmission. On a path that reorders,
    every late packet counts as lost. Return false if ``p`` itself is late.
    """
    q, slot = w.qp[p.qp], p.sent_at
    if slot < q.came_at:
        return False
    mask = w.s.flight_mask
    at, after = p.before, slot
    while at > q.came_at and w.s.now - at <= mask:
        w.flight[at & mask].after = after
        at, after = w.flight[at & mask].before, at
    while after != slot:
        one = w.flight[after & mask]
        if one.kind == ORIGINAL or one.kind == AGAIN:
            answer(w, p.qp, NACK, one.psn, 0, True)
        after = one.after
    q.came_at = slot
    return True


@compiled
def irn_arrive(w, p):
    """Process a packet at a receiver of IRN: a bitmap of fixed size (Mittal et al., SIGCOMM 2018).

    The sender has at most ``window`` packets outstanding, so that the receiver's bitmap suffices. The model is more
    favourable than the paper, in which a packet lost twice waits for a timer: here the order of transmission reveals
    every loss, and each selective acknowledgement repeats the contents of a lost one.
    """
    report_gap(w, p)
    new = p.kind != PROBE and place(w, p.qp, p.psn)
    acknowledge(w, p.qp, p.last != 0 or not new)


@compiled
def _blocks(w, cum, top):
    """Return the blocks of a bitmap from ``cum`` to before ``top``."""
    bits = w.s.pool_block_bits
    return 0 if top <= cum else (top - 1) // bits - cum // bits + 1


@compiled
def _hold(w, q, blocks):
    s = w.s
    s.pool_used += blocks - q.pool_blocks
    q.pool_blocks = blocks
    w.s.pool_peak = max(w.s.pool_peak, s.pool_used)


@compiled
def melo_arrive(w, p):
    """Process a packet at a receiver of MELO: bitmaps from a pool that all QPs share (Lu et al., APNet 2017).

    The pool has as much card memory as Adamap. A QP holds blocks of ``pool_block_bits`` PSNs from its oldest missing
    packet to its newest received one, while a packet is missing. A packet for which no block is free is dropped, and
    detected like a loss. There is no window.
    """
    report_gap(w, p)
    if p.kind == PROBE:
        acknowledge(w, p.qp, True)
        return
    q = w.qp[p.qp]
    top = max(q.pool_top, p.psn + 1)
    need = _blocks(w, q.cum, top) if p.psn > q.cum else q.pool_blocks
    if need > q.pool_blocks and w.s.pool_used + need - q.pool_blocks > w.s.pool_size:
        w.s.pool_drops += 1
        answer(w, p.qp, NACK, p.psn, 0, True)
        return
    q.pool_top = top
    new = place(w, p.qp, p.psn)
    _hold(w, q, _blocks(w, q.cum, top))
    acknowledge(w, p.qp, p.last != 0 or not new)


@compiled
def oracle_vanish(w, p):
    """Process the loss of a packet at its time of arrival, as a receiver with infinite memory that detects it then.

    Its messages are never lost. No scheme that depends on the receiver to detect losses does better.
    """
    if p.kind == ORIGINAL or p.kind == AGAIN:
        answer(w, p.qp, NACK, p.psn, 0, True)


@compiled
def dcp_vanish(w, p):
    """Process the header of a dropped packet, which a switch of DCP forwards: the receiver is notified at once.

    No bitmap is needed; the receiver counts packets per message (32 bytes per QP). A share ``header_loss`` of the
    headers is lost, too; then the whole message is sent again after ``due_slots``. The model favours DCP on a wide-area
    path, where loss is often corruption that no switch can report: ``header_loss`` 1 shows that case.
    """
    if (p.kind == ORIGINAL or p.kind == AGAIN) and uniform(w.s.random, HEADER) >= w.s.header_loss:
        answer(w, p.qp, NACK, p.psn, 0, True)


@compiled
def dcp_sent(w, qp, psn):
    """Set the deadline of the message that a new packet ends, if it ends one."""
    s, q = w.s, w.qp[qp]
    if q.next == q.total or q.next % s.message_packets == 0:
        first = psn - psn % s.message_packets
        expect(w, qp, first, psn + 1 - first)


@compiled
def expect(w, qp, first, count):
    """Set the deadline of ``count`` packets from PSN ``first`` on: one that has not arrived by then is sent again.

    No message names a loss. All deadlines are equally long, so the queue is in order. The receiver's state decides
    whether a packet arrived; this is valid because the deadline is longer than a round trip.
    """
    s, e = w.s, w.entry[push(w, DUE)]
    e.at, e.a, e.b, e.qp = s.now + s.due_slots, first, count, qp


@compiled
def overdue(w):
    """Process expired deadlines: send all packets of an entry again if one of them is missing."""
    at = due(w, DUE)
    while at >= 0:
        e = w.entry[at]
        pop(w, DUE)
        missing = False
        for psn in range(e.a, e.a + e.b):
            missing = missing or not seen(w, e.qp, psn)
        if missing:
            w.s.expiries += 1
            for psn in range(e.a, e.a + e.b):
                send_again(w, e.qp, psn, 0)
            expect(w, e.qp, e.a, e.b)
        at = due(w, DUE)


@compiled
def timer_only_sent(w, qp, psn):
    """Process the transmission of a new packet: a timer alone detects losses.

    Every packet that stays unacknowledged for ``due_slots``, three round trips by default, is sent again.
    """
    expect(w, qp, psn, 1)
