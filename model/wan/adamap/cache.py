"""Head cache and prefetch: the nodes of each list that are on the card. The rules are those of
``hdl/adamap/prefetch/prefetch.py``.

Each list has at most one read in flight. A read takes ``dma_slots`` and returns at most ``fetch_blocks`` nodes. It
starts when fewer than ``watermark`` nodes of the list are cached, or when a header waits for the list. The first node
of a list may take any entry; further nodes leave an eighth of the entries free, unless a header waits. A read needs no
entry: nodes that find no entry are kept in the read's slot until one is free. A kept read yields its slot to a list
that has no cached node or for which a header waits. For such a list the last node of another list is evicted, too;
normally not the first node of that list. Lists that lost a node to eviction, or found no slot for a read, are
scheduled again. If a node is linked after the last node of a list while a read of that last node is in flight, the
node is read again. With ``depth`` 0 nothing is cached: every match reads its node.
"""

from weft.hdl.contract.params import NODE_READS_MAX

from ...machine_code import compiled, inlined
from ..path.queue import FETCHES, LOOKS, length, pop, push
from ..path.queue import front as oldest

LOOKS_A_SLOT = 4    # a check takes 5 cycles; the slot of a 1-KiB packet at 100 Gb/s is 21 cycles
QP = [("list_head", "i4"), ("list_tail", "i4"), ("list_nodes", "i4"), ("cached", "i4"), ("fetching", "i4"),
      ("kept", "i4"), ("outrun", "i4"), ("looks", "i4"), ("wait_head", "i4"), ("wait_tail", "i4"), ("blocks", "i4"),
      ("rsn_next", "i8"), ("ask_at", "i8"), ("told_node", "i4")]
CONFIG = [("depth", "i8"), ("watermark", "i8"), ("fetch_blocks", "i8"), ("cache_entries", "i8"), ("dma_slots", "i8"),
          ("resident", "i8")]
STATE = [("cache_used", "i8"), ("cached_lists", "i8"), ("reads_held", "i8"), ("reads_kept", "i8"), ("hand", "i8")]
COUNTS = [("reads", "i8"), ("evicted", "i8"), ("cache_peak", "i8")]


@inlined
def _enter(w, q):
    """Give an entry to a node of a list."""
    s = w.s
    s.cached_lists += q.cached == 0
    q.cached += 1
    s.cache_used += 1
    s.cache_peak = max(s.cache_peak, s.cache_used)


@compiled
def leave(w, q, count):
    """Remove ``count`` nodes of a list from the cache, or as many as are cached."""
    s, gone = w.s, min(q.cached, count)
    q.cached -= gone
    s.cache_used -= gone
    s.cached_lists -= gone > 0 and q.cached == 0


@inlined
def _finish(w, q):
    """Release the slot of a list's read."""
    s = w.s
    s.reads_held -= 1
    s.reads_kept -= q.kept > 0
    q.kept = 0


@inlined
def _look_later(w, qp):
    q = w.qp[qp]
    if not q.looks:
        q.looks = 1
        w.entry[push(w, LOOKS)].qp = qp


@compiled
def _evict(w, qp, first):
    """Evict the last cached node of another list without waiting headers; return false if there is none.

    With ``first``, that node may be the first one of its list.
    """
    s, least = w.s, 1 - first
    if not first and s.cached_lists == s.cache_used:
        return False
    for _ in range(s.qps):
        s.hand = (s.hand + 1) % s.qps
        other = w.qp[s.hand]
        if s.hand != qp and other.cached > least and other.wait_head < 0 and other.fetching == 0:
            if other.kept > 0:
                _finish(w, other)
            leave(w, other, 1)
            s.evicted += 1
            _look_later(w, s.hand)
            return True
    return False


@compiled
def _place(w, needed):
    """Return whether a slot for a read is free; if it is ``needed``, drop a kept read for it."""
    s = w.s
    if s.reads_held == min(NODE_READS_MAX, s.cache_entries) and needed and s.reads_kept > 0:
        at = 0
        while w.qp[at].kept == 0:
            at += 1
        _finish(w, w.qp[at])
    return s.reads_held < min(NODE_READS_MAX, s.cache_entries)


@compiled
def _fill(w, qp, count):
    """Fill entries with the nodes of a read, or keep the nodes."""
    s, q = w.s, w.qp[qp]
    wanted, filled, found = q.wait_head >= 0, 0, True
    s.reads_kept -= q.kept > 0
    q.kept = 0
    while filled < count and found:
        free = s.cache_entries - s.cache_used
        if free > 0 and (wanted or q.cached == 0 or free > s.cache_entries // 8):
            _enter(w, q)
            filled += 1
        else:
            found = filled == 0 and (wanted or q.cached == 0) and (
                _evict(w, qp, False) or (wanted and _evict(w, qp, True)))
    if filled == 0 and count > 0 and wanted:    # the card would retire another list's head early; here: an extra entry
        _enter(w, q)
        filled = 1
    if filled > 0 or count <= 0:
        _finish(w, q)
    else:
        q.kept = count
        s.reads_kept += 1


@inlined
def _still(q, count):
    """Return how many of the nodes of a read are still current."""
    count, q.outrun = min(count, q.list_nodes - q.cached) - q.outrun, 0
    return count


@inlined
def outrun(q):
    """Note that a node is about to be linked after the last node of a list, if a read covers that last node."""
    if q.fetching + q.kept > 0 and q.cached + q.fetching + q.kept == q.list_nodes:
        q.outrun = 1


@compiled
def prefetch(w, qp):
    """Schedule a list: fill entries from its kept nodes, and start a read if one is due."""
    s, q = w.s, w.qp[qp]
    if q.kept > 0:
        _fill(w, qp, _still(q, q.kept))
    wanted, depth = q.wait_head >= 0, max(s.depth, 1)
    if q.fetching > 0 or q.kept > 0 or q.cached >= min(q.list_nodes, depth):
        return
    if not wanted and (s.depth == 0 or q.cached >= s.watermark):
        return
    if not _place(w, wanted or q.cached == 0):
        _look_later(w, qp)
        return
    unreserved = max(1, s.cache_entries - s.cache_used - s.cache_entries // 8)
    q.fetching = min(min(s.fetch_blocks, min(depth, q.list_nodes) - q.cached), unreserved)
    s.reads_held += 1
    s.reads += 1
    e = w.entry[push(w, FETCHES)]
    e.at, e.qp = s.now + s.dma_slots, qp


@inlined
def look_again(w):
    """Schedule the lists that were evicted from, or found no slot for a read."""
    s = w.s
    if s.reads_held < min(NODE_READS_MAX, s.cache_entries) or s.reads_kept > 0:
        for _ in range(min(LOOKS_A_SLOT, length(w, LOOKS))):
            qp = w.entry[oldest(w, LOOKS)].qp
            pop(w, LOOKS)
            w.qp[qp].looks = 0
            prefetch(w, qp)


@compiled
def keep(w, q):
    """Cache a node that was linked at the end of a list, for a card that writes its nodes itself.

    The node stays cached if all nodes before it are cached and an entry is free.
    """
    s = w.s
    if (s.resident and q.fetching == 0 and q.kept == 0 and q.cached == q.list_nodes - 1
            and s.cache_used < s.cache_entries):
        _enter(w, q)


@compiled
def fetched(w, qp):
    """Process the response to a read: cache or keep its nodes, except those that left the list meanwhile."""
    q = w.qp[qp]
    count, q.fetching = _still(q, q.fetching), 0
    _fill(w, qp, count)
