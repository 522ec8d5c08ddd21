"""Rules of Swift: sections 3.1, 3.4 and 3.5 of its paper."""

import pytest

from weft.driver.congestion.swift import Swift, SwiftSettings
from weft.driver.terms.settings import BadSetting

LINE, US, PACKET = 100e9, 1e3, 4178


def flow(window=10.0, **settings):
    one = Swift(SwiftSettings(**{"scaled_us": 0.0} | settings), LINE, 10 * US)
    one.window = window
    return one


def test_the_window_grows_by_one_packet_in_a_round_trip():
    one = flow()
    one.on_delay(0.0, 10 * US)
    one.on_ack(0.0, PACKET, 0)
    assert one.window == 10.1 and one.limit == int(10.1 * PACKET) and one.rate == LINE


def test_excess_delay_cuts_in_proportion_once_in_a_round_trip():
    one = flow()
    one.on_delay(100 * US, 20 * US)         # 10 µs of queue, 8 of them accepted
    one.on_ack(100 * US, PACKET, 0)
    assert one.window == pytest.approx(10 * (1 - 0.8 * 2 / 20))
    window = one.window
    one.on_ack(119 * US, PACKET, 0)
    assert one.window == window
    one.on_ack(120 * US, PACKET, 0)
    assert one.window < window


def test_no_cut_exceeds_the_largest():
    one = flow()
    one.on_delay(0.0, 1e6 * US)
    one.on_ack(0.0, PACKET, 0)
    assert one.window == 5.0


def test_loss_makes_the_largest_cut_once_in_a_round_trip():
    one = flow()
    one.on_loss(100 * US, PACKET)
    one.on_loss(101 * US, PACKET)
    assert one.window == 5.0


def test_a_window_below_one_packet_is_a_pause():
    one = flow(window=0.5)
    one.on_delay(0.0, 40 * US)
    one.on_ack(0.0, PACKET, 0)
    assert one.limit == PACKET and one.window < 0.5
    assert one.rate == pytest.approx(one.window * PACKET * 8e9 / (40 * US))


@pytest.mark.parametrize(("window", "target"), [(100.0, 8.0), (0.1, 16.0), (1000.0, 8.0), (0.05, 16.0)])
def test_small_windows_accept_more_delay(window, target):
    """Between the two windows the target follows the inverse square root; it is constant outside."""
    one = flow(window=window, scaled_us=8.0, window_least=0.01)
    for queue, grows in ((target - 0.01, True), (target + 0.01, False)):
        one.window, one.cut_at_ns = window, 1e18 if not grows else 0.0
        one.on_delay(0.0, (10 + queue) * US)
        one.on_ack(0.0, PACKET, 0)
        assert (one.window > min(window, 59.8)) == grows or window > 59


def test_the_scaling_needs_a_range():
    with pytest.raises(BadSetting, match="less than scaled_most"):
        SwiftSettings(scaled_least=2.0, scaled_most=1.0)
