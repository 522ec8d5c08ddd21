"""Adamap nodes: open in the builder, sealed in transit to the driver, or linked in a list.

The rules of the encodings are those of ``weft.model.functional.node``. A few fields of the node decide whether another
hole fits, without a pass over all holes.
"""

from weft.hdl.contract import abi

from ...machine_code import compiled
from ..path.queue import OPENED

HOLES = abi.NODE_HOLES_MAX
LIST, RUNS, BITMAP = (1 << encoding for encoding in (abi.Encoding.LIST, abi.Encoding.RUNS, abi.Encoding.BITMAP))
LIST_HOLES, RUNS_HOLES, RUNS_MAX, BITMAP_PSNS = abi.LIST_HOLES, abi.RUNS_HOLES, abi.RUNS_MAX, abi.NODE_BODY_BITS
OFFSETS = 1 << abi.OFFSET_BITS
OPEN, FILLED, UNMATCHED = range(3)

NODE = [("first", "i8"), ("rsn", "i8"), ("serial", "i8"), ("window", "i4"), ("next", "i4"), ("count", "i4"),
        ("left", "i4"), ("runs", "i4"), ("last", "i4"), ("fits", "u1"), ("notified", "u1"), ("linked", "u1"),
        ("offset", "i4", (HOLES,)), ("state", "u1", (HOLES,))]
CONFIG = [("encodings", "i8")]
STATE = [("node_free", "i8"), ("node_fresh", "i8"), ("nodes_used", "i8")]


@compiled
def new_node(w, window, first):
    """Return a node whose first hole is this PSN, or -1 if the experiment has no free node."""
    s = w.s
    at = s.node_free
    if at >= 0:
        s.node_free = w.node[at].next
    elif s.node_fresh < len(w.node):   # no free node was in use before
        at = s.node_fresh
        s.node_fresh += 1
    else:
        s.overflow = OPENED + 1
        return -1
    node = w.node[at]
    s.nodes_used += 1
    node.window, node.first, node.next = window, first, -1
    node.count = node.left = node.runs = node.notified = node.linked = 0
    node.last = -2
    node.fits = w.s.encodings
    return at


@compiled
def free_node(w, at):
    """Put a node on the free list."""
    s, node = w.s, w.node[at]
    node.serial += 1
    node.next = s.node_free
    s.node_free = at
    s.nodes_used -= 1


@compiled
def take_hole(node, psn):
    """Add a newer hole to a node if one of its encodings can still hold all holes; return whether it was added."""
    offset = psn - node.first
    starts_run = offset != node.last + 1
    fits = node.fits
    if node.count >= LIST_HOLES or offset >= OFFSETS:
        fits &= ~LIST
    if node.count >= RUNS_HOLES or (starts_run and (node.runs >= RUNS_MAX or offset >= OFFSETS)):
        fits &= ~RUNS
    if offset >= BITMAP_PSNS:
        fits &= ~BITMAP
    if fits == 0:
        return False
    node.fits = fits
    node.offset[node.count] = offset
    node.state[node.count] = OPEN
    node.runs += starts_run
    node.last = offset
    node.count += 1
    node.left += 1
    return True


@compiled
def hole_psn(w, node, slot):
    """Return the PSN of a hole, from its lane and its number in the lane."""
    lanes = w.s.lanes
    return (node.first + node.offset[slot]) * lanes + node.window % lanes
