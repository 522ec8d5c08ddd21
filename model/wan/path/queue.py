"""First-in first-out queues of a run: consecutive parts of one array.

Each queue defines the meaning of the fields of its entries: ``at`` is a slot, ``a`` and ``b`` are numbers, ``qp`` and
``kind`` are small numbers.
"""

from ...machine_code import inlined

RESENDS, READY, PROBES, BACK, DUE, OPENED, SEALED, BLOCKLESS, FETCHES, LOOKS = range(10)
NAMES = ("packets to be sent again", "ready QPs", "probes", "messages on the way back", "deadlines", "open nodes",
         "sealed nodes", "nodes without a block", "reads of nodes", "lists to be looked at again")
ENTRY = [("at", "i8"), ("a", "i8"), ("b", "i8"), ("qp", "i4"), ("kind", "i4")]
QUEUE = [("head", "i8"), ("tail", "i8"), ("first", "i8"), ("mask", "i8")]
STATE = [("overflow", "i8")]


@inlined
def push(w, queue):
    """Return the index of a new entry at the end. If the queue is full, ``overflow`` names it and the run ends."""
    q = w.queue[queue]
    if q.tail - q.head > q.mask:
        w.s.overflow = queue + 1
        return q.first
    q.tail += 1
    return q.first + ((q.tail - 1) & q.mask)


@inlined
def front(w, queue):
    """Return the index of the oldest entry, or -1."""
    q = w.queue[queue]
    return -1 if q.head == q.tail else q.first + (q.head & q.mask)


@inlined
def due(w, queue):
    """Return the index of the oldest entry if its time has come, or -1."""
    at = front(w, queue)
    return at if at >= 0 and w.entry[at].at <= w.s.now else -1


@inlined
def pop(w, queue):
    """Remove the oldest entry."""
    w.queue[queue].head += 1


@inlined
def length(w, queue):
    """Return the number of entries."""
    q = w.queue[queue]
    return q.tail - q.head
