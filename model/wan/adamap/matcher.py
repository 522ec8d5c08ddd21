"""Match retransmissions against the head of a list. The rules are those of ``weft.model.functional.matcher``.

A retransmission whose node is not cached waits in the match queue, and later ones of the same QP wait after it. If the
queue is full, the hole is left to the driver, which excludes it from the residue of the node.
"""

from ...machine_code import compiled
from .builder import submit
from .cache import leave, prefetch
from .node import FILLED, OPEN, UNMATCHED, free_node, new_node, take_hole

MATCHED, DUPLICATE, NOT_IN_NODE, STALE_RSN, WAIT = range(5)
WAITING = [("psn", "i8"), ("rsn", "i8"), ("since", "i8"), ("next", "i4")]
CONFIG = [("slack", "i8"), ("match_queue", "i8")]
STATE = [("wait_free", "i8"), ("blocks_free", "i8"), ("blocks_owed", "i8")]
COUNTS = [("matches", "i8"), ("stalls", "i8"), ("stall_slots", "i8"), ("unmatched", "i8"), ("nodes_retired", "i8"),
          ("residue", "i8")]


@compiled
def _leave_residue(w, node):
    """Send the open holes of a retired node to the driver as new nodes."""
    at = -1
    for slot in range(node.count):
        if node.state[slot] == OPEN:
            w.s.residue += 1
            psn = node.first + node.offset[slot]
            if at >= 0 and not take_hole(w.node[at], psn):
                submit(w, at)
                at = -1
            elif at >= 0:
                continue
            at = new_node(w, node.window, psn)
            if at < 0:
                return
            take_hole(w.node[at], psn)
    if at >= 0:
        submit(w, at)


@compiled
def retire(w, qp):
    """Retire the head of a list."""
    s, q = w.s, w.qp[qp]
    at = q.list_head
    node = w.node[at]
    q.list_head = node.next
    q.list_nodes -= 1
    if q.list_head < 0:
        q.list_tail = -1
    leave(w, q, 1)
    s.nodes_retired += 1
    if node.left > 0:
        _leave_residue(w, node)
    q.blocks -= 1
    s.blocks_free += 1
    s.blocks_owed += q.blocks == 0
    free_node(w, at)


@compiled
def retire_passed(w, qp, rsn, beyond, needs_cache):
    """Retire heads that are finished, or whose last RSN is at least ``beyond`` before ``rsn``.

    Return false if the next head cannot be checked because it is not cached.
    """
    q = w.qp[qp]
    while q.list_head >= 0:
        if needs_cache and q.cached == 0:
            return False
        head = w.node[q.list_head]
        if head.left > 0 and rsn - head.rsn < head.count + beyond:
            return True
        retire(w, qp)
    return True


@compiled
def match(w, qp, psn, rsn, needs_cache):
    """Fill the hole of a retransmission, with numbers as in the window; return one of the outcomes above."""
    q = w.qp[qp]
    if not retire_passed(w, qp, rsn, max(w.s.slack, 1) - 1, needs_cache):
        return WAIT
    if q.list_head < 0 or rsn < w.node[q.list_head].rsn:
        return STALE_RSN
    at, place = q.list_head, 0
    while at >= 0 and rsn >= w.node[at].rsn + w.node[at].count:
        at, place = w.node[at].next, place + 1
    if at < 0:
        return NOT_IN_NODE
    if needs_cache and place >= q.cached:
        return WAIT
    node = w.node[at]
    slot = rsn - node.rsn
    outcome = MATCHED
    if node.first + node.offset[slot] != psn:
        outcome = NOT_IN_NODE
    elif node.state[slot] == FILLED:
        outcome = DUPLICATE
    else:
        node.state[slot] = FILLED
        node.left -= 1
    while q.list_head >= 0 and w.node[q.list_head].left == 0 and (q.cached > 0 or not needs_cache):
        retire(w, qp)
    return outcome


@compiled
def _after_match(w, qp):
    if w.s.depth == 0:
        leave(w, w.qp[qp], 1)
    prefetch(w, qp)


@compiled
def take(w, qp, psn, rsn):
    """Process a retransmission that arrived; ``psn`` as its window numbers it."""
    s, q = w.s, w.qp[qp]
    s.matches += 1
    if q.wait_head < 0 and match(w, qp, psn, rsn, True) != WAIT:
        _after_match(w, qp)
        return
    s.stalls += 1
    at = s.wait_free
    if at < 0:
        s.unmatched += 1
        _to_driver(w, qp, psn, rsn)
        return
    e = w.waiting[at]
    s.wait_free = e.next
    e.psn, e.rsn, e.since, e.next = psn, rsn, s.now, -1
    if q.wait_head < 0:
        q.wait_head = at
    else:
        w.waiting[q.wait_tail].next = at
    q.wait_tail = at
    prefetch(w, qp)


@compiled
def _to_driver(w, qp, psn, rsn):
    """Mark a hole that the card leaves open as filled for the driver."""
    at = w.qp[qp].list_head
    while at >= 0 and rsn >= w.node[at].rsn + w.node[at].count:
        at = w.node[at].next
    if at >= 0 and rsn >= w.node[at].rsn:
        node = w.node[at]
        slot = rsn - node.rsn
        if node.first + node.offset[slot] == psn and node.state[slot] == OPEN:
            node.state[slot] = UNMATCHED


@compiled
def drain(w, qp):
    """Match the waiting headers of a QP after nodes arrived."""
    s, q = w.s, w.qp[qp]
    while q.wait_head >= 0:
        at = q.wait_head
        e = w.waiting[at]
        if match(w, qp, e.psn, e.rsn, True) == WAIT:
            break
        w.s.stall_slots += s.now - e.since
        q.wait_head = e.next
        e.next = s.wait_free
        s.wait_free = at
        if w.s.depth == 0:
            leave(w, q, 1)
    prefetch(w, qp)
