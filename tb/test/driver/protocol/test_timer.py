"""Progress timer of a QP: probes after silence, and its expiry."""

import pytest

from weft.driver.protocol.timer import Expiry, ProgressTimer


def probes_until_exhausted(timer, start, limit=10**6):
    """Return the times of the probes of a timer without progress, and of its expiry (None: not before ``limit``)."""
    probes = []
    while timer.running and timer.deadline < limit:
        now = timer.deadline
        assert timer.poll(now - 1) is None
        if timer.poll(now) is Expiry.EXHAUSTED:
            return probes, now - start
        probes.append(now - start)
    return probes, None


def test_stopped_timer_does_not_expire():
    assert ProgressTimer(100, 300, 1).poll(10**9) is None


def check_gaps(probes, *wanted):
    """Check the times before the first probe and between probes: those wanted, or up to an eighth more."""
    gaps = [b - a for a, b in zip([0, *probes], probes, strict=False)]
    assert len(gaps) == len(wanted)
    assert all(least <= gap <= least * 9 / 8 for gap, least in zip(gaps, wanted, strict=True)), (gaps, wanted)


def test_probe_intervals_grow_during_silence():
    timer = ProgressTimer(100, 1_000, 3)
    timer.progress(50)
    probes, end = probes_until_exhausted(timer, 50)
    check_gaps(probes, 100, 100, 200, 400, 800, 1_000, 1_000)
    assert end == 4_100 and not timer.running and timer.probes == 7


@pytest.mark.parametrize("period", [2_000, 2_500, 4_000, 6_000, 12_000, 18_000, 36_000])
def test_regular_outages_do_not_defeat_probes(period):
    """A retransmission that follows each probe by a round trip meets an outage fewer than 8 times in a row."""
    timer, now = ProgressTimer(25_000, 262_000, 7), 0
    round_trip, outage, tries = 11_000, 1_000, 0
    while now % period < outage:
        timer.progress(now)
        now, tries = timer.deadline, tries + 1
        assert timer.poll(now) is Expiry.PROBE
        now += round_trip
        assert tries < 8
    assert tries


@pytest.mark.parametrize(("probe_ns", "timeout_ns"), [(100, 1_000), (300, 70), (100, 0)])
def test_later_limits_act_as_initial_limits(probe_ns, timeout_ns):
    timers = ProgressTimer(probe_ns, timeout_ns, 3), ProgressTimer(probe_ns, 400, 1)
    timers[1].limit(timeout_ns, 3)
    for timer in timers:
        timer.progress(0)
    first, later = (probes_until_exhausted(timer, 0, 50_000) for timer in timers)
    assert first == later
    assert first[1] == (probe_ns + 4 * max(timeout_ns, probe_ns) if timeout_ns else None)


@pytest.mark.parametrize("retries", [0, 2, 7])
def test_end_depends_on_the_timeout_only(retries):
    ends = set()
    for probe_ns in (10, 100, 300):
        timer = ProgressTimer(probe_ns, 300, retries)
        timer.progress(0)
        ends.add(probes_until_exhausted(timer, 0)[1] - probe_ns)
    assert ends == {300 * (retries + 1)}


def test_pauses_of_this_host_do_not_count():
    """A host that pauses after any of its probes sends the others nevertheless; it also does with a peer that responds.
    """
    steady = ProgressTimer(100, 1_000, 3)
    steady.progress(0)
    probes, end = probes_until_exhausted(steady, 0)
    for paused in range(len(probes) + 1):
        timer, pause, sent = ProgressTimer(100, 1_000, 3), 1_000_000, []
        timer.progress(0)
        while timer.running:
            now = timer.deadline + pause * (len(sent) == paused)
            if timer.poll(now) is Expiry.EXHAUSTED:
                break
            sent.append(now)
        assert [at - pause * (number >= paused) for number, at in enumerate(sent)] == probes
        assert now - pause * (paused <= len(sent)) == end
    timer = ProgressTimer(100, 1_000, 3)
    timer.progress(0)
    for _ in range(3):
        now = timer.deadline + 1_000_000
        assert timer.poll(now) is Expiry.PROBE
        timer.answered(now + 10)


def test_progress_restarts_the_timer():
    timer = ProgressTimer(100, 1_000, 3)
    timer.progress(0)
    for _ in range(3):
        assert timer.poll(timer.deadline) is Expiry.PROBE
    timer.progress(500)
    probes, end = probes_until_exhausted(timer, 500)
    check_gaps(probes, 100, 100, 200, 400, 800, 1_000, 1_000)
    assert end == probes[0] + 4_000


def test_answered_probes_follow_the_round_trip():
    """On a long path, too: a time-out of many round trips does not slow down a working connection."""
    timer = ProgressTimer(300, 10_000, 3)
    timer.progress(0)
    probes = []
    for now in range(0, 6_000, 100):
        if timer.poll(now) is Expiry.PROBE:
            probes.append(now)
        if probes and now == probes[-1] + 100 and len(probes) % 3 == 0:   # two of three probes or responses are lost
            timer.answered(now)
    assert 10 < len(probes) < 15
    assert all(b - a <= 600 * 9 / 8 + 100 for a, b in zip(probes, probes[1:], strict=False))     # sampled every 100


def test_answered_timer_ends_eventually():
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
    longest = 100 << ProgressTimer.LONGEST_LOG2
    assert end is None
    check_gaps([probe - probes[-9] for probe in probes[-8:]], *[longest] * 8)
