"""Adamap node bytes and holes."""

import random

import pytest

from weft.driver.knitting.node import Node, choose_encoding, decode_body, encode_body, fits, open_holes
from weft.hdl import abi


def random_holes(rng):
    holes, at = [], 0
    spread = rng.choice([1, 2, 50, 4000])
    for _ in range(rng.randint(1, 320)):
        holes.append(at)
        at += rng.randint(1, spread) if rng.random() < 0.4 else 1
    return holes[:rng.choice([1, 5, 20, 21, 320])]


def test_every_encoding_returns_its_holes():
    rng = random.Random(5)
    seen = set()
    for _ in range(600):
        holes = random_holes(rng)
        for encoding in abi.Encoding:
            if fits(encoding, holes):
                seen.add(encoding)
                assert decode_body(encoding, len(holes), encode_body(encoding, holes)) == tuple(holes)
            else:
                with pytest.raises(ValueError):
                    encode_body(encoding, holes)
    assert seen == set(abi.Encoding)


def test_block_holds_a_node():
    node = Node(5, 7, (1 << 32) - 2, 99, abi.Encoding.RUNS, (0, 1, 2, 9))
    block = node.pack(next_line=0x1234, next_phase=1)
    assert len(block) == abi.BLOCK_BYTES
    assert Node.unpack(block) == node
    assert abi.NODE.unpack(block).next_line == 0x1234
    assert node.psns == [(1 << 32) - 2, (1 << 32) - 1, 0, 7]


def test_first_fitting_encoding_is_chosen():
    assert choose_encoding([0, 5]) == abi.Encoding.LIST
    assert choose_encoding(list(range(21))) == abi.Encoding.RUNS
    assert choose_encoding([*range(63), 65535]) == abi.Encoding.RUNS
    assert choose_encoding([*range(64), 65535]) is None      # more runs than the matcher has bits for
    assert choose_encoding(list(range(65))) == abi.Encoding.BITMAP
    assert choose_encoding(list(range(0, 320, 2))) == abi.Encoding.BITMAP
    assert choose_encoding(list(range(0, 640, 2))) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"encoding": 0, "count": 1, "body": 0},
        {"encoding": 1, "count": 0, "body": 0},
        {"encoding": 1, "count": 21, "body": 0},
        {"encoding": 1, "count": 2, "body": 0},
        {"encoding": 2, "count": 5, "body": 4 << 16},
        {"encoding": 2, "count": 320, "body": 0xFFFF_0000},
        {"encoding": 2, "count": 65, "body": 65 << 16},
        {"encoding": 3, "count": 2, "body": 1},
        {"encoding": 3, "count": 321, "body": (1 << 320) - 1},
    ],
)
def test_inconsistent_node_is_refused(fields):
    with pytest.raises(ValueError):
        Node.unpack(abi.NODE.pack(qpn=1, **fields))


def test_open_holes_are_bits_by_slot_or_by_distance():
    holes = (0, 5, 6, 9)
    for encoding in abi.Encoding.LIST, abi.Encoding.RUNS:
        assert open_holes(encoding, holes, 0b1010) == [5, 9]
    assert open_holes(abi.Encoding.BITMAP, holes, 1 << 5 | 1 << 9) == [5, 9]
    assert open_holes(abi.Encoding.BITMAP, holes, encode_body(abi.Encoding.BITMAP, holes)) == list(holes)
