"""Test of the benchmark of RDMA in software: each competitor transfers bytes, no faster than the link."""

import pytest

from weft.tb.verify.bench.soft import LINK_NS, RIVALS


@pytest.mark.parametrize("name", RIVALS)
def test_software_transfer_takes_processor_time(name):
    rival = RIVALS[name](2)
    taken, used = rival.measure(8192, 2)
    assert taken > 2 * LINK_NS + 2 * 2 * 8192 * 8 / 100 and used > 0
    rival.check(2 * 8192)
    rival.close()
