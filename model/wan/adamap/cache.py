"""The head cache and its prefetch: which nodes of a list are on the card. The rules of
``hdl/adamap/prefetch/prefetch.py``.

One read of a list is in flight at a time, takes ``dma_slots`` and brings ``fetch_blocks`` nodes at most. It starts
when fewer than ``watermark`` nodes of the list are cached, or when somebody waits. The first node of a list may have
any entry; further ones leave an eighth of them free, unless somebody waits. A read needs no entry: what finds none is
kept at the read's place until it may have one. A kept read gives its place to that of a list without a node, or for
which somebody waits; for such a list another one's last node is turned out, too, as a rule not its first. Lists that
were turned out, or found no place for a read, are looked at again. What a read brought of the list's last node is read
again if another one was linked behind it meanwhile. ``depth`` 0 keeps nothing: every match reads its node.
"""

from weft.hdl.contract.params import NODE_READS_MAX

from ...machine_code import compiled, inlined
from ..path.queue import FETCHES, LOOKS, length, pop, push
from ..path.queue import front as oldest

LOOKS_A_SLOT = 4    # one takes 5 cycles, the slot of a 1-KiB packet at 100 Gb/s 21
QP = [("list_head", "i4"), ("list_tail", "i4"), ("list_nodes", "i4"), ("cached", "i4"), ("fetching", "i4"),
      ("kept", "i4"), ("outrun", "i4"), ("looks", "i4"), ("wait_head", "i4"), ("wait_tail", "i4"), ("blocks", "i4"),
      ("rsn_next", "i8"), ("ask_at", "i8"), ("told_node", "i4")]
CONFIG = [("depth", "i8"), ("watermark", "i8"), ("fetch_blocks", "i8"), ("cache_entries", "i8"), ("dma_slots", "i8"),
          ("resident", "i8")]
STATE = [("cache_used", "i8"), ("cached_lists", "i8"), ("reads_held", "i8"), ("reads_kept", "i8"), ("hand", "i8")]
COUNTS = [("reads", "i8"), ("turned_out", "i8"), ("cache_peak", "i8")]


@inlined
def _enter(w, q):
    """A node of a list gets an entry."""
    s = w.s
    s.cached_lists += q.cached == 0
    q.cached += 1
    s.cache_used += 1
    s.cache_peak = max(s.cache_peak, s.cache_used)


@compiled
def leave(w, q, count):
    """So many nodes of a list leave the cache, as far as they are there."""
    s, gone = w.s, min(q.cached, count)
    q.cached -= gone
    s.cache_used -= gone
    s.cached_lists -= gone > 0 and q.cached == 0


@inlined
def _finish(w, q):
    """A list's read is done with."""
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
def _turn_out(w, qp, first):
    """Whether another list, that nobody waits for, gives up its last node, which may be its ``first`` one."""
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
            s.turned_out += 1
            _look_later(w, s.hand)
            return True
    return False


@compiled
def _place(w, needed):
    """Whether there is a place for a read; where it is ``needed``, that of what is kept."""
    s = w.s
    if s.reads_held == min(NODE_READS_MAX, s.cache_entries) and needed and s.reads_kept > 0:
        at = 0
        while w.qp[at].kept == 0:
            at += 1
        _finish(w, w.qp[at])
    return s.reads_held < min(NODE_READS_MAX, s.cache_entries)


@compiled
def _land(w, qp, count):
    """What a read brought gets entries, or is kept."""
    s, q = w.s, w.qp[qp]
    wanted, landed, found = q.wait_head >= 0, 0, True
    s.reads_kept -= q.kept > 0
    q.kept = 0
    while landed < count and found:
        free = s.cache_entries - s.cache_used
        if free > 0 and (wanted or q.cached == 0 or free > s.cache_entries // 8):
            _enter(w, q)
            landed += 1
        else:
            found = landed == 0 and (wanted or q.cached == 0) and (
                _turn_out(w, qp, False) or (wanted and _turn_out(w, qp, True)))
    if landed == 0 and count > 0 and wanted:    # the card would retire another list's head early: here, one entry more
        _enter(w, q)
        landed = 1
    if landed > 0 or count <= 0:
        _finish(w, q)
    else:
        q.kept = count
        s.reads_kept += 1


@inlined
def _still(q, count):
    """How many of the nodes that a read brought are as they were."""
    count, q.outrun = min(count, q.list_nodes - q.cached) - q.outrun, 0
    return count


@inlined
def outrun(q):
    """A node is about to be put behind the last one of a list, which a read may be for."""
    if q.fetching + q.kept > 0 and q.cached + q.fetching + q.kept == q.list_nodes:
        q.outrun = 1


@compiled
def prefetch(w, qp):
    """Look at a list: what is kept for it lands if it may, and a read starts if one is due."""
    s, q = w.s, w.qp[qp]
    if q.kept > 0:
        _land(w, qp, _still(q, q.kept))
    wanted, depth = q.wait_head >= 0, max(s.depth, 1)
    if q.fetching > 0 or q.kept > 0 or q.cached >= min(q.list_nodes, depth):
        return
    if not wanted and (s.depth == 0 or q.cached >= s.watermark):
        return
    if not _place(w, wanted or q.cached == 0):
        _look_later(w, qp)
        return
    spare = max(1, s.cache_entries - s.cache_used - s.cache_entries // 8)
    q.fetching = min(min(s.fetch_blocks, min(depth, q.list_nodes) - q.cached), spare)
    s.reads_held += 1
    s.reads += 1
    e = w.entry[push(w, FETCHES)]
    e.at, e.qp = s.now + s.dma_slots, qp


@inlined
def look_again(w):
    """Look at the lists that were turned out or found no place for a read."""
    s = w.s
    if s.reads_held < min(NODE_READS_MAX, s.cache_entries) or s.reads_kept > 0:
        for _ in range(min(LOOKS_A_SLOT, length(w, LOOKS))):
            qp = w.entry[oldest(w, LOOKS)].qp
            pop(w, LOOKS)
            w.qp[qp].looks = 0
            prefetch(w, qp)


@compiled
def keep(w, q):
    """A node was put at the end of a list: a card that writes its nodes itself keeps it, while all before it are
    there and there is room."""
    s = w.s
    if (s.resident and q.fetching == 0 and q.kept == 0 and q.cached == q.list_nodes - 1
            and s.cache_used < s.cache_entries):
        _enter(w, q)


@compiled
def fetched(w, qp):
    """A read is answered: the nodes are cached or kept, unless the list is shorter by now."""
    q = w.qp[qp]
    count, q.fetching = _still(q, q.fetching), 0
    _land(w, qp, count)
