"""Rules of rate matching, against a path of constant rate and delay."""

import math

import pytest

from weft.driver.congestion.rate_match import DRAIN, START_UP, STEADY, RateMatch, RateMatchSettings

LINE, MS = 100e9, 1e6
DELAY = 10 * MS


def flow(delay=DELAY, **settings):
    return RateMatch(RateMatchSettings(**settings), LINE, delay)


def acknowledge(one, now, length, rate, queue=0.0, lost_share=0.0, steps=16, delay=DELAY):
    """Report a constant delivery rate for a while; return the time after it."""
    for _ in range(steps):
        now += length / steps
        size = int(rate * length / steps / 8e9)
        one.on_delay(now, delay + queue)
        if lost_share:
            one.on_loss(now, int(size * lost_share / (1 - lost_share)))
        one.on_ack(now, size, one.limit)
    return now


def steady(rate, queue=0.0, **settings):
    """Return a flow that has left start-up at a rate, and the time."""
    one = flow(**settings)
    now = acknowledge(one, 0.0, 5 * DELAY, rate, queue, steps=80)
    assert one.state == STEADY
    return one, now


def test_start_up_keeps_two_products_of_the_growing_rate():
    one = flow()
    assert one.state == START_UP and one.limit == int(2 * LINE / 16 * DELAY / 8e9)
    now, rate = 0.0, LINE / 8
    for _ in range(2):
        now = acknowledge(one, now, DELAY, rate)
        assert one.state == START_UP and one.limit == pytest.approx(2 * rate * DELAY / 8e9, rel=0.05)
        rate *= 2


def test_start_up_ends_without_growth():
    one = flow()
    now = acknowledge(one, 0.0, DELAY, 40e9)
    assert one.state == START_UP
    acknowledge(one, now, 2 * DELAY, 40e9, steps=32)
    assert one.state == STEADY


def test_start_up_ends_at_a_queue():
    one = flow()
    acknowledge(one, 0.0, DELAY, LINE / 8, queue=0.3 * DELAY)
    assert one.state == STEADY


@pytest.mark.parametrize(("queue", "state"), [(4.7, START_UP), (4.9, STEADY)])
def test_a_long_path_tolerates_no_longer_queue_in_start_up(queue, state):
    """Sixteen targets end it, not a quarter of 100 ms, in which flows of 10 ms would starve."""
    one = flow(10 * DELAY)
    acknowledge(one, 0.0, 5 * DELAY, LINE / 8, queue=queue * MS, delay=10 * DELAY)
    assert one.state == state


def test_limit_is_the_rate_over_delay_and_target():
    one, _ = steady(40e9, queue=0.5 * MS)
    target = 0.3 * MS * (1 + math.log(LINE / 40e9))
    assert one.limit == pytest.approx(40e9 * (DELAY + target) / 8e9, rel=0.01)


def test_smaller_flows_accept_more_queue():
    shares = [one.limit / rate for rate in (50e9, 10e9, 1e9) for one, _ in [steady(rate, queue=2 * MS)]]
    assert shares == sorted(shares) and shares[0] < shares[-1]


def test_an_empty_queue_is_probed():
    full, _ = steady(40e9, queue=0.5 * MS)
    idle, now = steady(40e9, queue=0.5 * MS)
    for growth in (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 4):
        now = acknowledge(idle, now, DELAY, 40e9, steps=64)
        assert idle.limit == pytest.approx((1 + growth) * full.limit, rel=0.02)
    acknowledge(idle, now, 2 * DELAY, 40e9, queue=0.5 * MS)
    assert idle.limit == pytest.approx(full.limit, rel=0.01)


def test_random_loss_is_no_congestion():
    """One percent counts as delivered; five percent lower the target."""
    clean, _ = steady(40e9, queue=0.5 * MS)
    for share, congested in ((0.01, False), (0.05, True)):
        one, now = steady(40e9, queue=0.5 * MS)
        acknowledge(one, now, 4 * DELAY, 40e9 * (1 - share), 0.5 * MS, share, steps=64)
        assert (one.backoff_ns > 0) == congested
        assert (one.limit < 0.99 * clean.limit) == congested


def test_an_application_with_less_to_send_keeps_the_limit():
    one, now = steady(40e9, queue=0.5 * MS)
    limit = one.limit
    for _ in range(20):
        now += DELAY
        one.on_delay(now, DELAY)
        one.on_ack(now, 4178, limit // 4)
    assert one.limit == limit


def test_a_round_without_delay_measures_none():
    one, now = steady(40e9, delay_window_s=0.1)
    for _ in range(40):
        now += DELAY
        one.on_ack(now, 1000, one.limit)
    assert one.delay_ns == DELAY and one.rate > 0


def test_the_path_is_measured_again_with_half_of_the_limit():
    """After its window a longer path becomes the known one; until then the old round trip bounds the limit."""
    one, now = steady(40e9, queue=0.5 * MS, delay_window_s=0.1)
    limits, states = [], []
    for _ in range(40):
        now = acknowledge(one, now, DELAY + 5 * MS, 40e9, queue=5 * MS)
        limits.append(one.limit)
        states.append(one.state)
    at = states.index(DRAIN)
    assert limits[at] == pytest.approx(limits[at - 1] / 2, rel=0.01)
    assert one.delay_ns == DELAY + 5 * MS and states[-1] == STEADY


def test_the_limit_returns_after_the_path_is_measured():
    """The round after it has acknowledgements of half of the limit: they are not delivery rate."""
    one, now = steady(40e9, queue=0.5 * MS, delay_window_s=0.1)
    before = one.limit
    while one.state != DRAIN:
        now = acknowledge(one, now, DELAY / 16, 40e9, queue=0.5 * MS, steps=1)
    acknowledge(one, now, 2.2 * DELAY, 20e9, steps=35)
    assert one.state == STEADY and one.limit == pytest.approx(before, rel=0.01)
