"""Results of whole experiments."""

import pytest

from weft.model.fabric.experiment import FabricExperiment
from weft.model.fabric.result import Unmeasured, measure


def test_a_flow_with_a_long_round_trip_does_not_starve_a_short_one():
    """Flows of 10 and 100 ms that start together: neither gets less than a third of the other's rate."""
    found = measure(FabricExperiment(
        fabric="wan", algorithm="rate-match", host_gbps=10, bottleneck_gbps=4, marking="none", rtt_us=10_000,
        rtt_ratio=10, buffer_kib=48_828, warmup_rtts=6, measured_rtts=4))
    assert found.goodput > 0.95 and found.jain >= 0.8 and found.dropped == 0


def test_a_watched_port_without_a_flow_is_reported():
    with pytest.raises(Unmeasured, match="no flow passes the watched port"):
        measure(FabricExperiment(fabric="incast", flows=1))
