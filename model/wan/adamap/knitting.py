"""Receiving driver: makes sealed nodes into blocks of the knitting buffer, one list per QP, and loss reports.

One block is reserved for each QP that has none. A QP with blocks may link another one while it holds less than
``alpha`` times the free blocks that are not reserved. Nodes that find no block wait in order.
"""

from ...machine_code import compiled, inlined
from ..path.back import REPORT, answer
from ..path.queue import BLOCKLESS, SEALED, due, front, length, pop, push
from .cache import keep, outrun, prefetch

CONFIG = [("blocks", "i8"), ("alpha", "i8")]
COUNTS = [("nodes_linked", "i8"), ("blocks_peak", "i8"), ("waited_nodes", "i8"), ("waiting_peak", "i8"),
          ("reports_repeated", "i8")]


@compiled
def link(w, at):
    """Link a node and report it to the sender; return false if no block is available for it."""
    s, node = w.s, w.node[at]
    qp = node.window // s.lanes
    q = w.qp[qp]
    unreserved = s.blocks_free - s.blocks_owed
    if q.blocks > 0 and (unreserved <= 0 or q.blocks >= s.alpha * unreserved):
        return False
    s.blocks_free -= 1
    s.blocks_owed -= q.blocks == 0
    q.blocks += 1
    s.blocks_peak = max(s.blocks_peak, s.blocks - s.blocks_free)
    s.nodes_linked += 1
    node.rsn = q.rsn_next
    q.rsn_next += node.count
    node.linked = 1
    if q.list_tail >= 0:
        w.node[q.list_tail].next = at
    else:
        q.list_head = at
    q.list_tail = at
    outrun(q)
    q.list_nodes += 1
    keep(w, q)
    prefetch(w, qp)
    answer(w, qp, REPORT, at, node.rsn, False)
    return True


@inlined
def take_sealed(w):
    """Link the sealed nodes that reached the driver; those without a block wait."""
    s = w.s
    at = front(w, BLOCKLESS)
    while at >= 0 and link(w, w.entry[at].a):
        pop(w, BLOCKLESS)
        at = front(w, BLOCKLESS)
    at = due(w, SEALED)
    while at >= 0:
        node = w.entry[at].a
        pop(w, SEALED)
        if front(w, BLOCKLESS) >= 0 or not link(w, node):
            w.entry[push(w, BLOCKLESS)].a = node
            s.waited_nodes += 1
            s.waiting_peak = max(s.waiting_peak, length(w, BLOCKLESS))
        at = due(w, SEALED)


@compiled
def repeat(w, qp, rsn, limit):
    """Report at most ``limit`` linked nodes from this RSN on again."""
    at = w.qp[qp].list_head
    while at >= 0 and limit > 0:
        if w.node[at].rsn >= rsn:
            w.s.reports_repeated += 1
            answer(w, qp, REPORT, at, w.node[at].rsn, False)
            limit -= 1
        at = w.node[at].next
