"""The PCIe room before a host that misbehaves: see ``fault_cases``."""

from weft.tb.blocks.pcie.faults import inject

FAULTS = 300


def test_a_host_that_misbehaves_breaks_nothing():
    found = inject(FAULTS)
    assert not found["failures"] and sum(found["injected"].values()) >= FAULTS and found["errors"]
