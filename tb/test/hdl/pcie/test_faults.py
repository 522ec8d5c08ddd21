"""Tests of the PCIe subsystem with a faulty host: see ``fault_cases``."""

import pytest

from weft.tb.verify.fault.endpoint_cases import inject

FAULTS = 300


@pytest.mark.parametrize("straddle", [False, True], ids=["plain", "straddle"])
def test_misbehaving_host_breaks_nothing(straddle):
    found = inject(FAULTS, straddle=straddle)
    assert not found["failures"] and sum(found["injected"].values()) >= FAULTS and found["errors"]
