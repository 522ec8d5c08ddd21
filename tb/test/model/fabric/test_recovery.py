"""Recovery schemes of flows: every packet arrives, and goodput, window and repetitions are those of the scheme."""

import pytest

from weft.model.fabric.recovery import ADAMAP, GO_BACK_N, IRN, NAMES
from weft.model.fabric.result import packets_somewhere
from weft.tb.test.model.fabric.small_runs import advance, line, start

SIZE, RATE, PACKETS, WINDOW = 4178, 12.5, 3000, 12      # RATE: bytes in a nanosecond
SCHEMES = pytest.mark.parametrize("scheme", [ADAMAP, GO_BACK_N, IRN], ids=NAMES)


def flow(scheme, *, packets=PACKETS, loss=0.0, seed=1):
    """Return the state of a flow whose data and acknowledgements are lost with the same chance."""
    window = {"window": WINDOW, "span": 4 * WINDOW} if scheme == IRN else {}
    w = start(line(flow={"packets": packets}, loss=loss), seed=seed, recovery=scheme, time_out=100e3, **window)
    w.flow["rate"], w.none["rate"] = RATE, RATE * 8e9
    return w


@SCHEMES
def test_nothing_is_sent_twice_without_loss(scheme):
    w = flow(scheme)
    advance(w, 5000)
    f = w.flow[0]
    assert f["done_at"] > 0 and f["sent"] == f["placed"] == f["una"] == PACKETS
    assert f["resent"] == f["missing"] == f["time_outs"] == 0


@SCHEMES
def test_every_packet_arrives_once(scheme, seed):
    """Lost reports included, of which the last ones of a burst are found by a time-out."""
    w = flow(scheme, loss=0.02, seed=seed)
    advance(w, 100_000)
    f = w.flow[0]
    assert f["done_at"] > 0 and f["placed"] == f["una"] == PACKETS
    assert w.s["packets"] == packets_somewhere(w) == 0
    again = f["missing"] if scheme == ADAMAP else f["resent"]
    assert again > PACKETS // 100 and f["sent"] >= PACKETS + f["in_missing"] - 1
    if scheme == IRN:
        assert f["resent"] <= f["in_missing"] + f["time_outs"] and not w.got.any()
    if scheme == GO_BACK_N:
        assert f["resent"] > 5 * f["in_missing"] and f["epoch"] > PACKETS // 100


def test_irn_never_has_more_than_its_window_outstanding(seed):
    w, most = flow(IRN, loss=0.02, seed=seed), 0
    for us in range(1, 1000):
        advance(w, us)
        f = w.flow[0]
        most = max(most, int(f["next_psn"] - f["una"]))
        assert f["cum"] - f["una"] <= WINDOW and f["again_end"] - f["again_first"] <= WINDOW
    assert most == WINDOW


def test_goodput_of_go_back_n_is_that_of_its_formula(seed):
    """A loss costs the packets of a round trip: (1 - p) / (1 - p + p m)."""
    loss, us = 0.004, 40_000
    w = flow(GO_BACK_N, packets=0, loss=loss, seed=seed)
    advance(w, us)
    m = (4000 + 3 * SIZE / RATE) / (SIZE / RATE)        # packets in a round trip
    expected = (1 - loss) / (1 - loss + loss * m)
    assert w.flow[0]["placed"] * SIZE / RATE / (us * 1e3) == pytest.approx(expected, rel=0.03)
