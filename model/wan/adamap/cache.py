"""The head cache and its prefetch: which nodes of a list are on the card.

One read of a list is in flight at a time, takes ``dma_slots`` and brings ``fetch_blocks`` nodes at most. It starts
when fewer than ``watermark`` nodes of the list are cached, or when somebody waits. A list nobody waits for leaves a
quarter of the entries free. ``depth`` 0 keeps nothing: every match reads its node.
"""

from ...machine_code import compiled
from ..path.queue import FETCHES, push

QP = [("list_head", "i4"), ("list_tail", "i4"), ("list_nodes", "i4"), ("cached", "i4"), ("fetching", "i4"),
      ("wait_head", "i4"), ("wait_tail", "i4"), ("blocks", "i4"), ("rsn_next", "i8"), ("ask_at", "i8"),
      ("told_node", "i4")]
CONFIG = [("depth", "i8"), ("watermark", "i8"), ("fetch_blocks", "i8"), ("cache_entries", "i8"), ("dma_slots", "i8"),
          ("resident", "i8")]
STATE = [("cache_used", "i8"), ("hand", "i8")]
COUNTS = [("reads", "i8"), ("turned_out", "i8"), ("cache_peak", "i8")]


@compiled
def _turn_out(w, qp):
    """Take the place of a node of another list."""
    s = w.s
    for _ in range(s.qps):
        s.hand = (s.hand + 1) % s.qps
        other = w.qp[s.hand]
        if s.hand != qp and other.cached > 0 and other.wait_head < 0:
            other.cached -= 1
            s.cache_used -= 1
            w.s.turned_out += 1
            return


@compiled
def prefetch(w, qp):
    """Start a read of the list if one is due."""
    s, q = w.s, w.qp[qp]
    wanted, depth = q.wait_head >= 0, max(s.depth, 1)
    if q.fetching > 0 or q.cached >= min(q.list_nodes, depth):
        return
    if not wanted and (s.depth == 0 or q.cached >= s.watermark):
        return
    count = min(s.fetch_blocks, min(depth, q.list_nodes) - q.cached)
    if wanted:
        if s.cache_used >= s.cache_entries:
            _turn_out(w, qp)
        count = max(1, min(count, s.cache_entries - s.cache_used))
    else:
        count = min(count, s.cache_entries * 3 // 4 - s.cache_used)
        if count <= 0:
            return
    q.fetching = count
    s.cache_used += count
    s.cache_peak = max(s.cache_peak, s.cache_used)
    s.reads += 1
    e = w.entry[push(w, FETCHES)]
    e.at, e.qp = s.now + s.dma_slots, qp


@compiled
def leave(w, q, count):
    """So many of the list's first nodes leave the cache, as far as they are there."""
    gone = min(q.cached, count)
    q.cached -= gone
    w.s.cache_used -= gone


@compiled
def keep(w, q):
    """A node was put at the end of a list: a card that writes its nodes itself keeps it, while all before it are
    there and there is room."""
    s = w.s
    if s.resident and q.fetching == 0 and q.cached == q.list_nodes - 1 and s.cache_used < s.cache_entries:
        q.cached += 1
        s.cache_used += 1
        w.s.cache_peak = max(w.s.cache_peak, s.cache_used)


@compiled
def fetched(w, qp):
    """A read is answered: the nodes are cached, unless the list is shorter by now."""
    q = w.qp[qp]
    kept = min(q.fetching, q.list_nodes - q.cached)
    w.s.cache_used -= q.fetching - kept
    q.cached += kept
    q.fetching = 0
