"""Bytes and holes of Adamap nodes: the codec of the driver, the codec of the model, and their agreement."""

import random
from collections import Counter

import pytest

from weft.driver.knitting import node as driver_codec
from weft.hdl.contract import abi
from weft.model.functional import node as model_codec
from weft.tb.sim.flow.seed import drawn_seed

SEED = drawn_seed(__name__)
AGAIN = f"WEFT_SEED={SEED} python -m pytest tb/test/driver/knitting/test_node.py"
CODECS = {"driver": driver_codec, "model": model_codec}
Node = model_codec.Node


@pytest.fixture(params=CODECS)
def codec(request):
    return CODECS[request.param]


def pack(codec, node, **links):
    """Pack a node into a block with a codec."""
    if codec is model_codec:
        return node.pack(**links)
    return codec.pack_block(**links, qpn=node.qpn, generation=node.generation, count=len(node.holes),
                            encoding=node.encoding, base_psn=node.base_psn, rsn=node.rsn,
                            body=codec.encode_body(node.encoding, node.holes))


def unpack(codec, block):
    """Return the node of a block as a codec decodes it, or raise ValueError."""
    if codec is model_codec:
        return Node.unpack(block)
    found = abi.NODE.unpack(block)
    holes = codec.decode_body(found.encoding, found.count, found.body)
    return Node(found.qpn, found.generation, found.base_psn, found.rsn, found.encoding, holes)


def random_holes(rng):
    holes, at = [], 0
    spread = rng.choice([1, 2, 50, 4000])
    for _ in range(rng.randint(1, 320)):
        holes.append(at)
        at += rng.randint(1, spread) if rng.random() < 0.4 else 1
    return holes[:rng.choice([1, 5, 20, 21, 320])]


def test_every_encoding_returns_its_holes(codec):
    rng = random.Random(5)
    seen = set()
    for _ in range(600):
        holes = random_holes(rng)
        for encoding in abi.Encoding:
            if codec.fits(encoding, holes):
                seen.add(encoding)
                assert codec.decode_body(encoding, len(holes), codec.encode_body(encoding, holes)) == tuple(holes)
            else:
                with pytest.raises(ValueError):
                    codec.encode_body(encoding, holes)
    assert seen == set(abi.Encoding)


def test_block_holds_a_node(codec):
    node = Node(5, 7, (1 << 32) - 2, 99, abi.Encoding.RUNS, (0, 1, 2, 9))
    block = pack(codec, node, next_line=0x1234, next_phase=1)
    assert len(block) == abi.BLOCK_BYTES
    assert unpack(codec, block) == node
    assert abi.NODE.unpack(block).next_line == 0x1234
    assert node.psns == [(1 << 32) - 2, (1 << 32) - 1, 0, 7]


def test_first_fitting_encoding_is_chosen(codec):
    assert codec.choose_encoding([0, 5]) == abi.Encoding.LIST
    assert codec.choose_encoding(list(range(21))) == abi.Encoding.RUNS
    assert codec.choose_encoding([*range(63), 65535]) == abi.Encoding.RUNS
    assert codec.choose_encoding([*range(64), 65535]) is None      # more runs than the matcher has bits for
    assert codec.choose_encoding(list(range(65))) == abi.Encoding.BITMAP
    assert codec.choose_encoding(list(range(0, 320, 2))) == abi.Encoding.BITMAP
    assert codec.choose_encoding(list(range(0, 640, 2))) is None


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
def test_inconsistent_node_is_rejected(codec, fields):
    with pytest.raises(ValueError):
        unpack(codec, abi.NODE.pack(qpn=1, **fields))


def test_open_holes_are_bits_by_slot_or_by_distance(codec):
    holes = (0, 5, 6, 9)
    for encoding in abi.Encoding.LIST, abi.Encoding.RUNS:
        assert codec.open_holes(encoding, holes, 0b1010) == [5, 9]
    assert codec.open_holes(abi.Encoding.BITMAP, holes, 1 << 5 | 1 << 9) == [5, 9]
    assert codec.open_holes(abi.Encoding.BITMAP, holes, codec.encode_body(abi.Encoding.BITMAP, holes)) == list(holes)


# ---------------------------------------------------------------------- the driver's codec and the model's, compared

def outcome(function, *arguments):
    """Return the result of a function, or ValueError if the function raises it."""
    try:
        return function(*arguments)
    except ValueError:
        return ValueError


def both(name, *arguments):
    """Return the common result of the two codecs; assert that they agree."""
    driver, model = (outcome(getattr(codec, name), *arguments) for codec in CODECS.values())
    assert driver == model, f"{name}{arguments}: driver {driver}, model {model}; {AGAIN}"
    return driver


def same_damage(block):
    """Return true if a block is damaged; assert that driver and model agree.

    For the driver, a block is damaged if its encoder writes other bytes. The model has a separate check.
    """
    pointer, rest = block[:driver_codec.POINTER_BYTES], block[driver_codec.POINTER_BYTES:]
    fields = vars(abi.NODE.unpack(block))
    written = driver_codec.pack_pointer(*(fields[name] for name in ("next_phase", "next_adjacent", "next_line")))
    driver, model = abi.damage(bytes(len(pointer)) + rest) != 0 or pointer != written, model_codec.damage(block) != 0
    assert driver == model, AGAIN
    return driver


def test_codecs_write_the_same_bytes():
    rng, seen = random.Random(SEED), Counter()
    for _ in range(400):
        holes = tuple(random_holes(rng))
        assert both("runs_of", holes)
        chosen = both("choose_encoding", holes)
        for encoding in abi.Encoding:
            seen[encoding, both("fits", encoding, holes)] += 1
            body = both("encode_body", encoding, holes)
            if body is ValueError:
                continue
            assert both("decode_body", encoding, len(holes), body) == holes, AGAIN
            both("open_holes", encoding, holes, rng.getrandbits(abi.NODE_BODY_BITS))
            fields = [rng.getrandbits(bits) for bits in (24, 8, 32, 32)]
            links = {"next_line": rng.getrandbits(58), "next_phase": rng.getrandbits(1),
                     "next_adjacent": rng.getrandbits(1)}
            blocks = {pack(codec, Node(*fields, encoding, holes), **links) for codec in CODECS.values()}
            assert len(blocks) == 1, f"{holes} as {encoding.name}; {AGAIN}"
            assert not same_damage(*blocks), AGAIN
        assert chosen is None or seen[chosen, True]
    assert set(seen) == {(encoding, fit) for encoding in abi.Encoding for fit in (False, True)}, AGAIN


def test_codecs_accept_and_reject_the_same_blocks():
    """Sound nodes with a bit, a field, or the body replaced."""
    rng, seen = random.Random(SEED), Counter()
    for _ in range(3_000):
        holes = tuple(random_holes(rng))
        encoding = model_codec.choose_encoding(holes)
        if encoding is None:
            continue
        block = Node(5, 7, rng.getrandbits(32), 9, encoding, holes).pack()
        fields = vars(abi.NODE.unpack(block))
        damage = rng.choice(["none", "bit", "field", "swap", "body"])
        if damage == "bit":
            fields["body"] ^= 1 << rng.randrange(abi.NODE_BODY_BITS)
        elif damage == "field":
            fields |= rng.choice([{"count": rng.randrange(330)}, {"encoding": rng.randrange(6)}])
        elif damage == "swap":
            at = 16 * rng.randrange(20)
            fields["body"] ^= (fields["body"] >> at & 0xFFFF ^ rng.randrange(200)) << at
        elif damage == "body":
            fields["body"] = sum(rng.randrange(40) << 16 * k for k in range(20))
            fields["count"] = rng.choice([fields["count"], min(320, sum(fields["body"].to_bytes(40, "little")[2::4]))])
        block = abi.NODE.pack(**fields)
        driver, model = (outcome(unpack, codec, block) for codec in CODECS.values())
        assert driver == model, f"{block.hex()}: driver {driver}, model {model}; {AGAIN}"
        same_damage(block)
        seen[damage, driver is ValueError] += 1
    wanted = {(damage, refused) for damage in ("bit", "field", "swap", "body") for refused in (False, True)}
    assert wanted <= set(seen), f"{dict(seen)}; {AGAIN}"
    assert not seen["none", True]
