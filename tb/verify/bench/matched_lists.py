"""Lists of any length, generated when they are read, and the retransmissions for them."""

from weft.hdl.contract import abi
from weft.model.functional.node import Node
from weft.tb.sim.block.adamap.prepared_lists import FIRST_LINE

CACHED = 8              # nodes of all QPs cached ahead
BURSTS = 5              # at each end of a list
READ_CYCLES = {"burst": 250, "walk": 16}    # 1 µs, 64 ns
HOLES = {
    abi.Encoding.LIST: tuple(k * 401 for k in range(abi.LIST_HOLES)),
    abi.Encoding.RUNS: tuple(k * 999 + j for k in range(abi.RUNS_MAX) for j in range(6)),
    abi.Encoding.BITMAP: tuple(range(0, abi.NODE_BODY_BITS, 2)),
}
SPAN = 20_000           # PSNs from one node's base to the next


class PreparedList:
    """List of one QP: ``dense`` nodes at each end have all holes of the encoding, the others one."""

    def __init__(self, encoding, length, qpn, generation, dense):
        self.encoding, self.length, self.qpn, self.generation = encoding, length, qpn, generation
        self.dense = min(dense, length)
        self.first_line = FIRST_LINE + qpn * (length + 64)

    def holes(self, k):
        return HOLES[self.encoding] if k < self.dense or k >= self.length - self.dense else (0,)

    def rsn(self, k):
        """Return the RSN of node ``k``: the number of holes before it."""
        most, middle = len(HOLES[self.encoding]), max(0, self.length - 2 * self.dense)
        before = min(max(0, k - self.dense), middle)
        return (k - before) * most + before

    def block(self, line):
        """Return a block of host memory; blocks outside the list are zero."""
        k = line - self.first_line
        if not 0 <= k < self.length:
            return bytes(abi.BLOCK_BYTES)
        return Node(self.qpn, self.generation, k * SPAN, self.rsn(k), self.encoding, self.holes(k)).pack(
            next_line=line + 1, next_adjacent=1)

    def packets(self, first, count):
        """Return QPN, generation, PSN and RSN of the retransmissions for ``count`` nodes from ``first`` on."""
        return [(self.qpn, self.generation, k * SPAN + hole, self.rsn(k) + slot)
                for k in range(first, first + count) for slot, hole in enumerate(self.holes(k))]


def in_turn(sequences):
    """Interleave sequences of equal lengths: the first item of each, then the second of each, and so on."""
    return [item for turn in zip(*sequences, strict=True) for item in turn]
