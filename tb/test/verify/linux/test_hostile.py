"""A small part of ``weft bench --only linux-hostile``, with a new random seed; ``WEFT_SEED`` repeats one."""

import pytest

from weft.driver.vfio_user import dma
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.volume import volume
from weft.tb.verify.linux.hostile import ZERO, guests

ATTACKERS = volume(8, 100)


@pytest.mark.parametrize("backend", ["functional", "model"])
def test_hostile_machines_harm_no_other(backend):
    seed = drawn_seed(backend)
    print(f"run again: WEFT_SEED={seed} pytest tb/test/verify/linux/test_hostile.py -k {backend}")
    found = guests(ATTACKERS, int(backend == "functional"), seed, backend)
    assert not any(found.get(name) for name in ZERO), found
    assert found["rounds"] and found["killed"] and found["unsupported"], found


def test_writes_to_memory_that_may_only_be_read_are_noticed(monkeypatch):
    pieces = dma.DmaMap._pieces
    monkeypatch.setattr(dma.DmaMap, "_pieces", lambda self, address, length, flag: pieces(
        self, address, length, dma.READABLE))
    assert guests(ATTACKERS, 0, 1)["wrong_bytes"]
