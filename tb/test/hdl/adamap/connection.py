"""State of a connection in the drivers at both ends, for benches of the Adamap subsystem."""

from collections import deque

from weft.model.functional.node import choose_encoding
from weft.model.functional.node_list import NodeList

MASK = (1 << 32) - 1


class Qp:
    """State of one connection in both drivers."""

    def __init__(self, qpn, generation, psn, rsn, read, inside):
        self.qpn, self.generation = qpn, generation
        self.next_psn = psn            # sender: next original
        self.rsn = rsn                 # receiver: RSN of the next hole linked
        self.linked = 0
        self.nodes = deque()           # (line, Node) in the list
        self.events = deque()            # blocks of the nodes that were not yet reported to the card
        self.todo = deque()            # retransmissions the sender knows of: (psn, rsn)
        self.sent_rsn = rsn
        self.lost = set()              # PSNs reported as holes
        self.filled = set()
        self.in_flight = 0             # packets without verdict
        self.matcher = NodeList(qpn, generation, read, inside)
        self.expected = deque()        # retirements of the model: (node, ticket)


def pieces_of(holes):
    """Cut holes into nodes: the rest of a node of runs may need more than one."""
    piece = []
    for hole in holes:
        if piece and choose_encoding([h - piece[0] for h in [*piece, hole]]) is None:
            yield piece
            piece = []
        piece.append(hole)
    yield piece
