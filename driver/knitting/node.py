"""Encoding of Adamap nodes."""

from weft.hdl.contract import abi

_SPAN = 1 << abi.OFFSET_BITS
_RUN_BITS = 2 * abi.OFFSET_BITS
POINTER_BYTES = abi.NODE.shift_of("qpn") // 8
_POINTER = ("next_phase", "next_adjacent", "next_line")
_PHASE, _ADJACENT, _LINE, _CHECK = (abi.NODE.shift_of(name) for name in (*_POINTER, "next_check"))


def pack_block(**fields):
    """Return the 64 bytes of a block of the knitting buffer: NODE fields and their check bits."""
    pointer = pack_pointer(**{name: fields.pop(name, 0) for name in _POINTER})
    return pointer + abi.NODE.pack(**fields, check=abi.damage(abi.NODE.pack(**fields)))[POINTER_BYTES:]


def pack_pointer(next_phase=0, next_adjacent=0, next_line=0):
    """Return the first 8 bytes of a block, from the NODE fields with these names."""
    word = next_phase << _PHASE | next_adjacent << _ADJACENT | next_line << _LINE
    odd = word
    for shift in (32, 16, 8, 4):
        odd ^= odd >> shift
    odd = (odd << 4 | odd & 15) >> _CHECK % 4 & 15      # the check is not aligned to 4 bits
    return (word | odd << _CHECK).to_bytes(POINTER_BYTES, "little")


def runs_of(holes):
    """Return ascending numbers as (first, length) runs."""
    runs = []
    for hole in holes:
        if runs and runs[-1][0] + runs[-1][1] == hole:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((hole, 1))
    return runs


def fits(encoding, holes):
    """Return true if an encoding can hold these holes (distances from the first one)."""
    if not 1 <= len(holes) <= abi.NODE_HOLES_MAX:
        return False
    if encoding == abi.Encoding.LIST:
        return len(holes) <= abi.LIST_HOLES and holes[-1] < _SPAN
    if encoding == abi.Encoding.RUNS:
        runs = runs_of(holes)
        return len(holes) <= abi.RUNS_HOLES and len(runs) <= abi.RUNS_MAX and runs[-1][0] < _SPAN
    return holes[-1] < abi.NODE_BODY_BITS


def choose_encoding(holes):
    """Return the first encoding that can hold these holes, or None."""
    return next((e for e in abi.Encoding if fits(e, holes)), None)


def encode_body(encoding, holes):
    """Return the body of a node.

    Raises
    ------
    ValueError
        If the holes do not fit the encoding.
    """
    if not fits(encoding, holes):
        raise ValueError(f"{len(holes)} holes over {holes[-1] + 1 if holes else 0} PSNs do not fit {encoding.name}")
    if encoding == abi.Encoding.LIST:
        return sum(hole << abi.OFFSET_BITS * i for i, hole in enumerate(holes))
    if encoding == abi.Encoding.RUNS:
        return sum(
            (first | length << abi.OFFSET_BITS) << _RUN_BITS * i for i, (first, length) in enumerate(runs_of(holes))
        )
    return sum(1 << hole for hole in holes)


def decode_body(encoding, count, body):
    """Return the holes of a body, ascending.

    Raises
    ------
    ValueError
        If encoding, count and body do not agree.
    """
    if not 1 <= count <= abi.NODE_HOLES_MAX:
        raise ValueError(f"a node of {count} holes")
    if encoding == abi.Encoding.LIST:
        if count > abi.LIST_HOLES:
            raise ValueError(f"a list of {count} holes")
        holes = [body >> abi.OFFSET_BITS * i & _SPAN - 1 for i in range(count)]
    elif encoding == abi.Encoding.RUNS:
        words = [body >> _RUN_BITS * i & (1 << _RUN_BITS) - 1 for i in range(abi.RUNS_MAX)]
        if sum(word >> abi.OFFSET_BITS for word in words) > abi.RUNS_HOLES:
            raise ValueError("runs of more holes than they may have")
        holes = [(word & _SPAN - 1) + k for word in words for k in range(word >> abi.OFFSET_BITS)]
    elif encoding == abi.Encoding.BITMAP:
        holes = [k for k in range(abi.NODE_BODY_BITS) if body >> k & 1]
    else:
        raise ValueError(f"unknown encoding {encoding}")
    if len(holes) != count:
        raise ValueError(f"the node states {count} holes, its body holds {len(holes)}")
    if any(a >= b for a, b in zip(holes, holes[1:], strict=False)):
        raise ValueError("holes out of order")
    return tuple(holes)


def open_holes(encoding, holes, bits):
    """Return the unfilled holes according to ``open`` of a RETIRE report: bits by slot, for a BITMAP by distance."""
    if encoding == abi.Encoding.BITMAP:
        return [hole for hole in holes if bits >> hole & 1]
    return [hole for slot, hole in enumerate(holes) if bits >> slot & 1]
