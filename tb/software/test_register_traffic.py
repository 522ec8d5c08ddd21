"""What a driver costs the bus, on functional cards: registers touched per message, and no wait too short."""

import pytest

from weft.driver.terms.enums import MTU
from weft.driver.verbs.context import ContextConfig
from weft.model.link import LinkConfig
from weft.tb.software.functional_pair import close_and_check, make_endpoints, make_pair, transfer
from weft.tb.software.register_traffic import RegisterTraffic

LENGTH = 1 << 20
MESSAGE_BYTES = 64 << 10


@pytest.mark.parametrize("loss", [0, 0.01])
@pytest.mark.parametrize("qps", [1, 12])
def test_a_short_round_trip_does_not_keep_the_bus_busy(qps, loss):
    """Descriptors wait in the card for longer than the probe timeout: nobody looks at them all the time."""
    config = ContextConfig(probe_timeout_ns=26_000, ring_log2=8, max_extents=2)
    pair = make_pair(config, forward=LinkConfig(delay_ns=1_000, loss=loss), backward=LinkConfig(delay_ns=1_000), seed=1)
    ends = make_endpoints(pair, LENGTH, qps=qps, path_mtu=MTU.MTU_4096)
    traffic = [RegisterTraffic(device) for device in pair.devices]
    sent, _ = transfer(pair, ends, message_bytes=MESSAGE_BYTES)
    if not loss:
        assert sent["nanoseconds"] < 1.1 * 8 * LENGTH / 100, "slower than the line"
    for side in traffic:
        assert min(timeout for _, timeout, _ in side.waits) >= side.device.shortest_wait_ns
        assert not side.reads, "a register read stalls whoever reads"
    assert sum(side.total for side in traffic) / sent["messages"] <= 4, [side.writes for side in traffic]
    close_and_check(pair, ends)
