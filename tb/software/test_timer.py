"""The timer of a QP: probes after silence, and an end to them."""

import pytest

from weft.driver.protocol.timer import Expiry, ProgressTimer


def probes_until_exhausted(timer, start, limit=10**6):
    """When the timer, left alone, asks for probes, and when it gives up (None: not before ``limit``)."""
    probes = []
    while timer.running and timer.deadline < limit:
        now = timer.deadline
        assert timer.poll(now - 1) is None
        if timer.poll(now) is Expiry.EXHAUSTED:
            return probes, now - start
        probes.append(now - start)
    return probes, None


def test_stopped_timer_says_nothing():
    assert ProgressTimer(100, 300, 1).poll(10**9) is None


def test_silence_is_followed_by_probes_further_and_further_apart():
    timer = ProgressTimer(100, 1_000, 3)
    timer.progress(50)
    assert probes_until_exhausted(timer, 50) == ([100, 200, 400, 800, 1_600, 2_600, 3_600], 4_100)
    assert not timer.running and timer.probes == 7


@pytest.mark.parametrize("retries", [0, 2, 7])
def test_the_end_depends_on_the_timeout_alone(retries):
    ends = set()
    for probe_ns in (10, 100, 300):
        timer = ProgressTimer(probe_ns, 300, retries)
        timer.progress(0)
        ends.add(probes_until_exhausted(timer, 0)[1] - probe_ns)
    assert ends == {300 * (retries + 1)}


def test_progress_starts_anew():
    timer = ProgressTimer(100, 1_000, 3)
    timer.progress(0)
    for now in (100, 200, 400):
        assert timer.poll(now) is Expiry.PROBE
    timer.progress(500)
    assert probes_until_exhausted(timer, 500) == ([100, 200, 400, 800, 1_600, 2_600, 3_600], 4_100)


def test_answered_probes_follow_the_round_trip():
    """On a long path too: a timeout of many round trips does not slow down what is alive."""
    timer = ProgressTimer(300, 10_000, 3)
    timer.progress(0)
    probes = []
    for now in range(0, 6_000, 100):
        if timer.poll(now) is Expiry.PROBE:
            probes.append(now)
        if probes and now == probes[-1] + 100 and len(probes) % 3 == 0:   # two of three get lost, or their answers
            timer.answered(now)
    assert len(probes) == 14 and all(b - a <= 600 for a, b in zip(probes, probes[1:], strict=False))


def test_answered_timer_ends_at_last():
    timer = ProgressTimer(1, 4, 1)
    timer.progress(0)
    for now in range(1, 10_000):
        expiry = timer.poll(now)
        if expiry is Expiry.EXHAUSTED:
            break
        timer.answered(now)
    assert expiry is Expiry.EXHAUSTED and now == 1 + ProgressTimer.STALL_FACTOR * 2 * 4


def test_timeout_zero_never_gives_up():
    timer = ProgressTimer(100, 0, 0)
    timer.progress(0)
    probes, end = probes_until_exhausted(timer, 0, limit=10**6)
    assert end is None and probes[-1] - probes[-2] == 100 << ProgressTimer.LONGEST_LOG2
