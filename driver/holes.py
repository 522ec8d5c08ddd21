"""Lost PSNs as runs, and the Adamap nodes that hold them."""

from weft.hdl import abi

from .wrap import near

_SPAN = 1 << abi.OFFSET_BITS
_RUN_BITS = 2 * abi.OFFSET_BITS


def _offsets_to_runs(offsets):
    runs = []
    for offset in offsets:
        if runs and runs[-1][0] + runs[-1][1] == offset:
            runs[-1][1] += 1
        else:
            runs.append([offset, 1])
    return [tuple(r) for r in runs]


def decode(encoding, count, body):
    """Holes of a node as (offset, length) runs in PSN order.

    Raises
    ------
    ValueError
        If encoding and count do not agree with the body.
    """
    if encoding == abi.Encoding.LIST:
        if not 1 <= count <= abi.LIST_HOLES:
            raise ValueError(f"a list of {count} holes")
        runs = _offsets_to_runs((body >> (abi.OFFSET_BITS * i)) % _SPAN for i in range(count))
    elif encoding == abi.Encoding.RUNS:
        words = [(body >> (_RUN_BITS * i)) % (1 << _RUN_BITS) for i in range(abi.RUNS_MAX)]
        runs = [(w % _SPAN, w >> abi.OFFSET_BITS) for w in words if w >> abi.OFFSET_BITS]
    elif encoding == abi.Encoding.BITMAP:
        runs = _offsets_to_runs(k for k in range(abi.NODE_BODY_BITS) if body >> k & 1)
    else:
        raise ValueError(f"unknown encoding {encoding}")
    if sum(n for _, n in runs) != count or not 1 <= count <= abi.NODE_HOLES_MAX:
        raise ValueError(f"node says {count} holes, its body holds {sum(n for _, n in runs)}")
    if any(a + n > b for (a, n), (b, _) in zip(runs, runs[1:], strict=False)):
        raise ValueError("holes out of order")
    return runs


def node_runs(node, reference):
    """Holes of an unpacked NODE as (psn, length) runs; PSNs extended near ``reference``."""
    base = near(node.base_psn, reference, 32)
    return [(base + offset, n) for offset, n in decode(node.encoding, node.count, node.body)]


def fields_runs(fields, reference):
    """The same for NODE fields as :func:`encode` returns them."""
    base = near(fields["base_psn"], reference, 32)
    return [(base + offset, n) for offset, n in decode(fields["encoding"], fields["count"], fields["body"])]


def _encode(runs):
    """(encoding, body) that holds all these runs in one node, or None."""
    base, end = runs[0][0], runs[-1][0] + runs[-1][1]
    count = sum(n for _, n in runs)
    if count > abi.NODE_HOLES_MAX or end - base > _SPAN:
        return None
    if count <= abi.LIST_HOLES:
        offsets = [p - base + k for p, n in runs for k in range(n)]
        return abi.Encoding.LIST, sum(o << (abi.OFFSET_BITS * i) for i, o in enumerate(offsets))
    if len(runs) <= abi.RUNS_MAX:
        return abi.Encoding.RUNS, sum((p - base | n << abi.OFFSET_BITS) << (_RUN_BITS * i)
                                      for i, (p, n) in enumerate(runs))
    if end - base <= abi.NODE_BODY_BITS:
        return abi.Encoding.BITMAP, sum(((1 << n) - 1) << (p - base) for p, n in runs)
    return None


def encode(runs):
    """NODE fields (base_psn, count, encoding, body) for each node needed to hold (psn, length) runs in PSN order."""
    nodes, todo = [], [(p + k, min(n - k, abi.NODE_HOLES_MAX)) for p, n in runs for k in range(0, n, abi.NODE_HOLES_MAX)]
    while todo:
        take, best = 1, _encode(todo[:1])
        while take < len(todo) and (more := _encode(todo[:take + 1])):
            take, best = take + 1, more
        part, todo = todo[:take], todo[take:]
        nodes.append({"base_psn": part[0][0] & 0xFFFF_FFFF, "count": sum(n for _, n in part),
                      "encoding": best[0], "body": best[1]})
    return nodes


def residue_runs(runs, open_bits):
    """The runs left of a node when bit i of ``open_bits`` says that hole i is still open."""
    holes = [p + k for p, n in runs for k in range(n)]
    return _offsets_to_runs(p for i, p in enumerate(holes) if open_bits >> i & 1)
