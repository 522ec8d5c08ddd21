"""Rules of DCQCN: section 3.1 of its paper."""

import pytest

from weft.driver.congestion.dcqcn import Dcqcn, DcqcnSettings

LINE, US = 100e9, 1e3


def flow(**settings):
    return Dcqcn(DcqcnSettings(**settings), LINE, 10 * US)


def test_a_notification_cuts_by_half_of_alpha_and_raises_alpha():
    one = flow(gain=0.25)
    one.on_cnp(0.0)
    assert (one.rate, one.target, one.alpha) == (LINE / 2, LINE, 1.0)
    one.alpha = 0.5
    one.on_cnp(0.0)
    assert (one.rate, one.target, one.alpha) == (LINE / 2 * 0.75, LINE / 2, 0.625)


def test_alpha_decays_in_each_period_without_notification():
    one = flow(gain=0.25)
    one.on_cnp(10 * US)
    one.on_ack(10 * US + 3 * 55 * US + 1, 0, 0)
    assert one.alpha == pytest.approx(0.75 ** 3)


def test_time_alone_applies_the_same_periods():
    """Paced packets leave, and nothing is acknowledged."""
    one, other = flow(), flow()
    for each in (one, other):
        each.on_cnp(10 * US)
    for us in (40, 70, 130, 700):
        one.on_time(us * US)
    other.on_ack(700 * US, 0, 0)
    assert (one.rate, one.target, one.alpha) == (other.rate, other.target, other.alpha)
    assert one.rate > LINE * 0.99


def test_the_first_notification_halves_the_rate_at_any_time():
    """A flow that was never congested has no estimate of congestion."""
    one = flow()
    one.on_ack(1e9, 0, 0)
    one.on_cnp(1e9)
    assert one.rate == LINE / 2


def test_fast_recovery_halves_the_distance_to_the_target():
    one = flow()
    one.on_cnp(0.0)
    one.on_ack(55 * US, 0, 0)
    assert one.rate == LINE * 0.75 and one.target == LINE
    one.on_ack(110 * US, 0, 0)
    assert one.rate == LINE * 0.875


@pytest.mark.parametrize(("timers", "counts", "step"), [(4, 0, 0), (5, 0, 40e6), (5, 5, 400e6)])
def test_additive_and_hyper_increase_follow(timers, counts, step):
    """Additive after five periods of timer or counter, hyper after five of both."""
    one = flow()
    one.rate, one.target, one.alpha_at_ns = LINE / 4, LINE / 4, 0.0
    one.timer_count, one.byte_count = timers - 1, counts
    one.on_ack(55 * US, 0, 0)
    assert one.target == LINE / 4 + step and one.rate == LINE / 4 + step / 2


def test_bytes_increase_as_the_timer_does():
    one = flow(byte_counter=1_000_000)
    one.on_cnp(0.0)
    one.on_ack(1.0, 2_500_000, 0)
    assert one.byte_count == 2 and one.bytes == 500_000 and one.rate == LINE * 0.875
    one.on_cnp(2.0)
    assert one.byte_count == one.bytes == one.timer_count == 0


def test_the_limit_is_two_products_of_the_shortest_path():
    one = flow()
    assert one.limit == 250_000
    one.on_delay(0.0, 8 * US)
    one.on_delay(0.0, 80 * US)
    assert one.limit == 200_000
