"""Random Adamap nodes."""

from weft.hdl.contract import abi
from weft.model.functional.node import Node, fits

MOST_HOLES = {abi.Encoding.LIST: abi.LIST_HOLES, abi.Encoding.RUNS: abi.RUNS_HOLES,
              abi.Encoding.BITMAP: abi.NODE_HOLES_MAX}


def random_node(rng, *, qpn, generation, rsn, holes_max=8):
    """Return a node of any encoding: mostly of few holes, sometimes of as many as the encoding can have."""
    encoding = rng.choice(list(abi.Encoding))
    count = rng.randint(1, holes_max) if rng.random() < 0.95 else MOST_HOLES[encoding]
    return Node(qpn, generation, rng.choice([0, (1 << 32) - 3, rng.getrandbits(32)]), rsn % (1 << 32), encoding,
                random_holes(rng, encoding, count))


def random_holes(rng, encoding, count):
    """Return ``count`` distances that fit the encoding, the first 0."""
    while True:
        if encoding == abi.Encoding.BITMAP:
            holes = [0, *sorted(rng.sample(range(1, abi.NODE_BODY_BITS), count - 1))]
        else:
            gap, longest = rng.choice([(1, 64), (30, 64), (3000, 8), (60000, 64)])
            holes = []
            while len(holes) < count:
                first = holes[-1] + 1 + rng.randint(1, gap) if holes else 0
                holes += range(first, first + rng.randint(1, longest))
            holes = holes[:count]
        if fits(encoding, holes):
            return tuple(holes)
