"""Adamap: a bitmap window, nodes of holes in host memory, retransmissions matched against the head of a list."""

from ...machine_code import compiled, inlined
from ..adamap.builder import seal, seal_aged
from ..adamap.cache import fetched, look_again
from ..adamap.knitting import repeat, take_sealed
from ..adamap.matcher import drain, retire_passed, take
from ..adamap.node import hole_psn
from ..adamap.window import ACCEPT, LATE, MATCH, STALE, adapt, judge, passed
from ..path.back import ACK
from ..path.line import AGAIN, ORIGINAL, PROBE, REQUEST
from ..path.queue import FETCHES, due, pop
from ..path.score import acknowledge, place
from ..path.sender import acknowledged, ask, send_again

REPEATED_MAX, ASKED_MAX = 64, 16   # loss reports repeated for a probe and for a request, as in the driver


@compiled
def arrive(w, p):
    """Process a packet at the receiver."""
    s, qp = w.s, p.qp
    if p.kind == REQUEST:
        repeat(w, qp, p.rsn, ASKED_MAX)
        return
    if p.kind == PROBE:
        _probed(w, p)
        return
    window = qp * s.lanes + p.psn % s.lanes
    psn = p.psn // s.lanes
    verdict = judge(w, window, psn, p.kind == AGAIN)
    if verdict == STALE:
        s.stale += 1
        s.placed_again += p.kind == AGAIN
        return
    if verdict in (ACCEPT, LATE, MATCH):
        place(w, qp, p.psn)
    s.late_originals += verdict == LATE
    if verdict == MATCH:
        take(w, qp, psn, p.rsn)
    if p.kind == ORIGINAL:
        if s.adapt:
            adapt(w, window, verdict)
        if p.last and verdict == ACCEPT:
            seal(w, window)
    _notified(w, qp)


@compiled
def _notified(w, qp):
    """Send an acknowledgement if it is due; the windows on the card get the acknowledged PSN, too."""
    s, q = w.s, w.qp[qp]
    before = q.cum_reported
    acknowledge(w, qp, False)
    if q.cum_reported != before:
        for lane in range(s.lanes):
            w.window[qp * s.lanes + lane].cum = (q.cum_reported - lane + s.lanes - 1) // s.lanes


@compiled
def _probed(w, p):
    s, qp = w.s, p.qp
    for lane in range(s.lanes):
        passed(w, qp * s.lanes + lane, (p.psn - lane + s.lanes - 1) // s.lanes)
        seal(w, qp * s.lanes + lane)
    retire_passed(w, qp, p.rsn, 0, False)
    repeat(w, qp, p.rsn, REPEATED_MAX)
    acknowledge(w, qp, True)


@inlined
def host(w):
    """Run the timed actions of card and driver in a slot."""
    seal_aged(w)
    take_sealed(w)
    at = due(w, FETCHES)
    while at >= 0:
        qp = w.entry[at].qp
        pop(w, FETCHES)
        fetched(w, qp)
        drain(w, qp)
        at = due(w, FETCHES)
    look_again(w)


@compiled
def handle_control(w, m):
    """Process a message at the sender: reports take effect in order of their RSNs, a missing one is requested."""
    q = w.qp[m.qp]
    if m.kind == ACK:
        acknowledged(w, m.qp, m.a)
        return
    if m.b < q.rsn_sent:
        return
    w.node[m.a].notified = 1
    if m.b > q.rsn_sent:
        if w.s.now >= q.ask_at:
            q.ask_at = w.s.now + w.s.time_out
            ask(w, m.qp, q.rsn_sent)
        return
    at = m.a
    while at >= 0 and w.node[at].linked and w.node[at].notified:
        node = w.node[at]
        for slot in range(node.count):
            send_again(w, m.qp, hole_psn(w, node, slot), node.rsn + slot)
        q.rsn_sent += node.count
        at = node.next
    q.ask_at = 0

