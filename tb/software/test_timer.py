"""The timer of a QP: probes after silence, and an end to them."""

from weft.driver.protocol.timer import Expiry, ProgressTimer


def test_timer():
    timer = ProgressTimer(100, 300, 1)
    assert timer.poll(10**9) is None
    timer.progress(0)
    assert timer.poll(99) is None
    assert timer.poll(100) is Expiry.PROBE
    timer.progress(150)
    assert timer.poll(249) is None and timer.poll(250) is Expiry.PROBE
    assert timer.poll(549) is None and timer.poll(550) is Expiry.PROBE and timer.poll(850) is Expiry.EXHAUSTED
    assert not timer.running


def test_answered_timer_ends_at_last():
    timer = ProgressTimer(1, 1, 0)
    timer.progress(0)
    for now in range(1, 1_000):
        expiry = timer.poll(now)
        timer.answered()
        if expiry is Expiry.EXHAUSTED:
            break
    assert expiry is Expiry.EXHAUSTED and timer.probes == ProgressTimer.STALL_FACTOR + 1
