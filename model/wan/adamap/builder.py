"""Node builder: a few open nodes on the card, sealed when full, when old, or when their slot is needed.

The rules are those of ``weft.model.functional.builder``. A sealed node reaches the driver after ``host_slots``.
"""

from ...machine_code import compiled, inlined
from ..path.queue import OPENED, SEALED, due, front, pop, push
from .node import HOLES, new_node, take_hole

CONFIG = [("builder_slots", "i8"), ("age_slots", "i8"), ("host_slots", "i8")]
STATE = [("open_nodes", "i8")]
COUNTS = [("holes", "i8"), ("nodes_sealed", "i8")]


@compiled
def submit(w, at):
    """Send a node to the driver."""
    s, e = w.s, w.entry[push(w, SEALED)]
    e.at, e.a = s.now + s.host_slots, at
    s.nodes_sealed += 1


@compiled
def seal(w, window):
    """Seal the open node of a window, if it has one."""
    win = w.window[window]
    if win.open >= 0:
        at, win.open = win.open, -1
        w.s.open_nodes -= 1
        w.node[at].serial += 1
        submit(w, at)


@compiled
def _oldest(w):
    """Return the open node that was opened first, or -1; drop entries of sealed nodes before it."""
    at = front(w, OPENED)
    while at >= 0 and w.node[w.entry[at].a].serial != w.entry[at].b:
        pop(w, OPENED)
        at = front(w, OPENED)
    return w.entry[at].a if at >= 0 else -1


@compiled
def add_hole(w, window, psn):
    """Record the loss of a PSN of a window."""
    s, win = w.s, w.window[window]
    w.s.holes += 1
    if win.open >= 0 and not take_hole(w.node[win.open], psn):
        seal(w, window)
    elif win.open >= 0:
        if w.node[win.open].count == HOLES:
            seal(w, window)
        return
    oldest = _oldest(w)
    if s.open_nodes == s.builder_slots:
        seal(w, w.node[oldest].window)
    at = new_node(w, window, psn)
    if at < 0:
        return
    take_hole(w.node[at], psn)
    win.open = at
    s.open_nodes += 1
    e = w.entry[push(w, OPENED)]
    e.at, e.a, e.b = s.now + s.age_slots, at, w.node[at].serial


@inlined
def seal_aged(w):
    """Seal the nodes whose age has reached the limit."""
    at = due(w, OPENED)
    while at >= 0:
        e = w.entry[at]
        pop(w, OPENED)
        if w.node[e.a].serial == e.b:
            seal(w, w.node[e.a].window)
        at = due(w, OPENED)
