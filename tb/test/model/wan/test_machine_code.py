"""Tests that the models' machine code has no reference counts."""

from pathlib import Path

import numba
import numpy as np

from weft.model import machine_code


@machine_code.compiled
def _add(pair, times):
    for _ in range(times):
        pair[0][0] += pair[1][0]


def _call(pair, times):
    _add(pair, times)
    return pair[0][0]


def test_arrays_are_not_counted(tmp_path, monkeypatch):
    """With numba's default beside it, to show that the test would find the counts."""
    monkeypatch.setenv("WEFT_BUILD", str(tmp_path))
    directions = machine_code.entries([Path(__file__)])(_call), numba.njit(_call)
    counted = []
    for function in directions:
        assert function((np.ones(1), np.full(1, 2.0)), 3) == 7
        counted.append("NRT_incref" in next(iter(function.inspect_llvm().values())))
    assert counted == [False, True]
