"""Rules of switches as pure functions. The engine of flows compiles them; the one of frames calls them."""

import zlib

from weft.hdl.contract import wire

ADDRESS = 0x0A00_0001       # IPv4 address of the first host of a description; those of the others follow
ROCE_PORT, UDP = 4791, 17
HASH = 0xFFFF_FFFF
TRIM_BYTES = wire.DATA_HEADER_BYTES     # of a frame: what is left of a trimmed packet


def tuple_hash(source: int, destination: int, port: int, to_port: int = ROCE_PORT, protocol: int = UDP) -> int:
    """Return the hash of a 5-tuple: IPv4 addresses, UDP ports and protocol."""
    values = source, destination, port << 16 | to_port, protocol
    return zlib.crc32(b"".join(value.to_bytes(4, "big") for value in values))


def spread(value: int, node: int) -> int:
    """Return the hash of a 5-tuple as node ``node`` uses it: the finaliser of MurmurHash3, different at each node."""
    z = (value + (node + 1) * 0x9E3779B9) & HASH
    z = ((z ^ (z >> 16)) * 0x85EBCA6B) & HASH
    z = ((z ^ (z >> 13)) * 0xC2B2AE35) & HASH
    return z ^ (z >> 16)


def admits(size: int, control: bool, length: int, free: int, alpha: float) -> bool:
    """Return whether a queue with ``length`` bytes may take ``size`` more of a buffer's ``free`` bytes.

    A queue of data may occupy ``alpha`` times the free part, control frames all of it.
    """
    return size <= free and (control or length + size <= alpha * free)


def pauses(held: int, pausing: bool, pause_from: int, pause_until: int) -> bool:
    """Return whether a switch pauses a link of which it holds ``held`` bytes of data.

    ``pausing`` is what it did until now. The pause begins at ``pause_from`` bytes, 0 for none, and ends when less than
    ``pause_until`` is left.
    """
    return pause_from > 0 and held >= (pause_until if pausing else pause_from)


def mark_chance(length: int, mark_from: int, mark_to: int, most: float) -> float:
    """Return the chance of a mark for a packet that finds ``length`` bytes of data in its queue.

    From ``mark_to`` on every packet is marked, and before with a chance that grows from 0 at ``mark_from`` to ``most``;
    none if ``mark_from`` is larger than ``mark_to``.
    """
    if length < mark_from or mark_from > mark_to:
        return 0.0
    if length >= mark_to:
        return 1.0
    return most * (length - mark_from) / (mark_to - mark_from)
