"""Node builder without time: the functional model of ``hdl/adamap/builder/builder.py``."""

from weft.hdl.contract import abi

from .node import Node, fits


class NodeBuilder:
    """Open nodes, filled hole by hole: the simplest definition of when a node is sealed.

    Parameters
    ----------
    slots : int
        Number of QPs that can have an open node at the same time.
    encodings : tuple of abi.Encoding
        Encodings of the card's configuration.
    """

    def __init__(self, slots, encodings=tuple(abi.Encoding)):
        self.slots, self.encodings = slots, encodings
        self.open = {}   # (qpn, generation) -> [first PSN, holes]; oldest first

    def run(self, qpn, generation, psn, length, seal):
        """Add a run of holes; return the sealed nodes, in order."""
        key, sealed = (qpn, generation), []
        if length == 0 and not seal:
            self.open.pop(key, None)
            return sealed
        for hole in range(psn, psn + length):
            if key in self.open and self._encoding([*self.open[key][1], hole - self.open[key][0]]) is None:
                sealed.append(self.seal(key))
            if key not in self.open:
                if len(self.open) == self.slots:
                    sealed.append(self.seal(next(iter(self.open))))
                self.open[key] = hole, []
            first, holes = self.open[key]
            holes.append(hole - first)
            if len(holes) == abi.NODE_HOLES_MAX:
                sealed.append(self.seal(key))
        if seal and key in self.open:
            sealed.append(self.seal(key))
        return sealed

    def seal(self, key):
        """Seal and return the node of a QP."""
        first, holes = self.open.pop(key)
        return Node(*key, first % (1 << 32), 0, self._encoding(holes), tuple(holes))

    def _encoding(self, holes):
        """Return the first encoding that can hold these holes, or None."""
        return next((e for e in self.encodings if fits(e, holes)), None)
