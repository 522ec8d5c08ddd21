"""Lost PSNs as (first, length) runs, and the Adamap nodes that hold them."""

from .node import choose_encoding, decode_body, encode_body, runs_of
from .wrap import near


def node_runs(node, reference):
    """Holes of a NODE (anything with its fields) as runs of PSNs, extended near ``reference``.

    Raises
    ------
    ValueError
        If encoding, count and body do not agree.
    """
    base = near(node.base_psn, reference, 32)
    return [(base + offset, n) for offset, n in runs_of(decode_body(node.encoding, node.count, node.body))]


def encode(runs):
    """(runs, NODE fields) for each node needed to hold runs in PSN order, each as full as it can be."""
    nodes, first, holes = [], 0, []
    for psn in (start + k for start, n in runs for k in range(n)):
        if holes and choose_encoding([*holes, psn - first]) is None:
            nodes.append((first, holes))
            holes = []
        if not holes:
            first = psn
        holes.append(psn - first)
    if holes:
        nodes.append((first, holes))
    return [([(first + o, n) for o, n in runs_of(holes)], _fields(first, holes)) for first, holes in nodes]


def _fields(first, holes):
    encoding = choose_encoding(holes)
    return {
        "base_psn": first & 0xFFFF_FFFF,
        "count": len(holes),
        "encoding": encoding,
        "body": encode_body(encoding, holes),
    }


def residue_runs(runs, open_bits):
    """The runs left of a node when bit i of ``open_bits`` says that hole i is still open."""
    holes = [p + k for p, n in runs for k in range(n)]
    return runs_of(p for i, p in enumerate(holes) if open_bits >> i & 1)
