"""Holes encoded as nodes, and the residue that a RETIRE report leaves."""

import random
from types import SimpleNamespace

import pytest

from weft.driver.knitting.holes import encode, node_runs, residue_runs
from weft.hdl.contract import abi


@pytest.mark.parametrize("seed", range(20))
def test_holes_survive_encoding_and_residue(seed):
    rng = random.Random(seed)
    psn, runs = rng.randrange(1 << 33), []
    for _ in range(rng.randint(1, 60)):
        psn += rng.choice([1, 2, 50, 5_000, 70_000])
        length = rng.choice([1, 1, 3, 40, 500])
        runs.append((psn, length))
        psn += length
    flat = [p + k for p, n in runs for k in range(n)]
    back = []
    for part, fields in encode(runs):
        abi.NODE.pack(**fields)
        assert fields["count"] <= abi.NODE_HOLES_MAX
        assert node_runs(SimpleNamespace(**fields), part[0][0]) == part
        holes = [p + k for p, n in part for k in range(n)]
        back += holes
        wanted = [h for h in holes if rng.random() < 0.5]
        bitmap = fields["encoding"] == abi.Encoding.BITMAP
        open_bits = sum(1 << (h - holes[0] if bitmap else i) for i, h in enumerate(holes) if h in wanted)
        left = [p + k for p, n in residue_runs(part, fields["encoding"], open_bits) for k in range(n)]
        assert left == wanted
    assert back == flat
