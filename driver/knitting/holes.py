"""Lost PSNs as (first, length) runs, and their conversion to Adamap nodes."""

from weft.hdl.contract import abi

from ..protocol.wrap import near
from .node import choose_encoding, decode_body, encode_body, open_holes, runs_of


def node_runs(node, reference):
    """Return the holes of a NODE (any object with its fields) as runs of PSNs, extended near ``reference``.

    Raises
    ------
    ValueError
        If encoding, count and body do not agree.
    """
    base = near(node.base_psn, reference, 32)
    return [(base + offset, n) for offset, n in runs_of(decode_body(node.encoding, node.count, node.body))]


def encode(runs):
    """Return (runs, NODE fields) of the nodes for runs in PSN order, each as full as possible."""
    nodes, spans = [], [(start, start + n) for start, n in runs]
    while spans:
        nodes.append(encode_first(spans))
        end = sum(nodes[-1][0][-1])
        spans = [(max(a, end), b) for a, b in spans if b > end]
    return nodes


def encode_first(spans):
    """Return (runs, NODE fields) of the fullest node that starts with the first of ``(start, end)`` spans in PSN order.
    """
    first = spans[0][0]
    holes, taken = max((_fill(spans, limit) for limit in _LIMITS), key=lambda filled: filled[0])
    offsets = [start - first + k for start, n in taken for k in range(n)]
    encoding = choose_encoding(offsets)
    return taken, {"base_psn": first & 0xFFFF_FFFF, "count": holes, "encoding": encoding,
                   "body": encode_body(encoding, offsets)}


def _fill(spans, limit):
    """Return (holes, runs) of the longest prefix that an encoding can hold."""
    first, holes, taken = spans[0][0], 0, []
    for start, end in spans:
        fitting = min(end, start + abi.NODE_HOLES_MAX - holes, limit(first, len(taken), start, holes))
        if fitting > start:
            taken.append((start, fitting - start))
            holes += fitting - start
        if fitting < end:
            break
    return holes, taken


def _list_limit(first, _runs, start, holes):
    """Return the first PSN of a run at ``start`` that a list cannot hold, after ``holes`` holes."""
    return min(start + abi.LIST_HOLES - holes, first + (1 << abi.OFFSET_BITS))


def _runs_limit(first, runs, start, holes):
    return start + abi.RUNS_HOLES - holes if runs < abi.RUNS_MAX and start - first < 1 << abi.OFFSET_BITS else start


def _bitmap_limit(first, _runs, _start, _holes):
    return first + abi.NODE_BODY_BITS


_LIMITS = _list_limit, _runs_limit, _bitmap_limit


def residue_runs(runs, encoding, open_bits):
    """Return the remaining runs of a retired node with these runs and this encoding.

    ``open_bits`` is the field ``open`` of the RETIRE report.
    """
    first = runs[0][0]
    holes = [p - first + k for p, n in runs for k in range(n)]
    return [(first + hole, n) for hole, n in runs_of(open_holes(encoding, holes, open_bits))]


def without(runs, psns):
    """Return the runs without these PSNs."""
    return [(p, n) for p, n in runs_of([p + k for p, n in runs for k in range(n) if p + k not in psns])] \
        if psns else runs
