"""A connection as the drivers at both ends know it, for benches of the Adamap room."""

from collections import deque

from weft.model.functional.node import choose_encoding
from weft.model.functional.node_list import NodeList

MASK = (1 << 32) - 1


class Qp:
    """Both drivers' view of one connection."""

    def __init__(self, qpn, generation, psn, rsn, read, inside):
        self.qpn, self.generation = qpn, generation
        self.next_psn = psn            # sender: next original
        self.rsn = rsn                 # receiver: RSN of the next hole linked
        self.linked = 0
        self.nodes = deque()           # (line, Node) in the list
        self.news = deque()            # blocks of those that the card was not yet told of
        self.todo = deque()            # retransmissions the sender knows of: (psn, rsn)
        self.sent_rsn = rsn
        self.lost = set()              # PSNs reported as holes
        self.filled = set()
        self.in_flight = 0             # packets without judgement
        self.matcher = NodeList(qpn, generation, read, inside)
        self.expected = deque()        # retirements of the model: (node, ticket)


def pieces_of(holes):
    """Cut holes into nodes: what is left of a node of runs need not fit a single one."""
    piece = []
    for hole in holes:
        if piece and choose_encoding([h - piece[0] for h in [*piece, hole]]) is None:
            yield piece
            piece = []
        piece.append(hole)
    yield piece
