"""Tests of the PCIe subsystem with a faulty host: see ``fault_cases``."""

import pytest

from weft.tb.verify.fault.endpoint_cases import inject

FEW, MANY = 60, 300


@pytest.mark.parametrize(("faults", "straddle"), [(FEW, False), (MANY, False), (MANY, True)],
                         ids=["few", "plain", "straddle"])
def test_misbehaving_host_breaks_nothing(faults, straddle):
    found = inject(faults, straddle=straddle)
    assert not found["failures"] and sum(found["injected"].values()) >= faults and found["errors"]
