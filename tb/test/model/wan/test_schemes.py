"""Tests of each scheme against properties that are known without a simulation."""

import dataclasses

import pytest

from weft.model.wan.experiment import SCHEMES, Experiment
from weft.model.wan.result import measure
from weft.model.wan.simulation_state import make

SHORT = Experiment(rtt_ms=0.5, warmup_rtts=4, measured_rtts=4)
ENDLESS = [scheme for scheme in SCHEMES if scheme not in ("irn-128", "irn-512")]


@pytest.mark.parametrize("scheme", ENDLESS)
def test_lossless_line_is_full(scheme):
    result = measure(SHORT.with_(scheme=scheme, qps=3))
    assert result.goodput == result.ordered_goodput == 1 and result.idle == 0
    assert (result.retransmissions, result.spurious, result.holes) == (0, 0, 0)


@pytest.mark.parametrize(("scheme", "window"), [("irn-128", 128), ("irn-512", 512)])
def test_a_window_shorter_than_the_path_limits_goodput_to_its_share(scheme, window):
    x = SHORT.with_(scheme=scheme, measured_rtts=50)
    # With an ACK per eighth of a window, a round trip is a little longer than the path's.
    assert 0.95 * window / x.bdp < measure(x).goodput <= window / x.bdp * 1.01


def test_go_back_n_follows_its_formula(seed):
    x = Experiment(scheme="go-back-n", rtt_ms=0.02, loss=1e-2, warmup_rtts=10, measured_rtts=3000, seed=seed)
    expected = (1 - x.loss) / (1 - x.loss + x.loss * x.bdp)
    result = measure(x)
    assert result.goodput == pytest.approx(expected, rel=0.1), x
    assert result.retransmissions / result.packets == pytest.approx(1 - expected, rel=0.1), x   # the line is full


@pytest.mark.parametrize("scheme", ["oracle", "adamap", "adamap-raw", "hole-fifo"])
@pytest.mark.parametrize("loss", [1e-3, 5e-2])
def test_unbounded_window_loses_only_losses_of_the_line(scheme, loss, seed):
    x = Experiment(scheme=scheme, rtt_ms=0.5, loss=loss, seed=seed, warmup_rtts=20, measured_rtts=20)
    result = measure(x)
    assert result.goodput == pytest.approx(1 - loss, abs=5 * (loss / (20 * x.bdp)) ** 0.5), x
    assert result.spurious == result.unmatched == result.aliases == 0, x


def test_bounded_window_costs_goodput_and_a_double_one_less(seed):
    x = Experiment(scheme="irn-bdp", rtt_ms=0.5, loss=1e-3, seed=seed, warmup_rtts=10, measured_rtts=50)
    result = measure(x)
    assert 0.4 < result.goodput < 0.65 and result.idle > 0.3, x


LOSSES = {
    "independent": {"loss": 0.02}, "bursts": {"burst": 16, "burst_loss": 0.1}, "outage": {"outage_ms": 0.2},
    "comb": {"comb": 384}, "drift": {"loss": 1e-3, "drift_loss": 0.05, "drift_ms": 0.3},
    "way back": {"loss": 0.02, "back_loss": 0.05}, "swaps": {"loss": 0.01, "swap": 0.01, "swap_us": 20},
    "paths": {"loss": 0.01, "paths": 4, "skew_us": 20}, "switch": {"loss": 0.01, "switch_us": 50}}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", LOSSES)
def test_every_packet_is_placed_once_and_all_memory_is_freed(scheme, path, seed):
    qps = 3
    x = Experiment(scheme=scheme, rtt_ms=0.1, qps=qps, transfer_mib=2, message_kib=64, seed=seed, **LOSSES[path])
    w = make(x)
    result = measure(x, w)
    assert result.lost > 0, x
    assert w.s["placed"] == w.s["in_order"] == qps * x.packets, x
    assert (w.qp["cum"] == x.packets).all() and (w.qp["una"] == x.packets).all() and not w.seen.any(), x
    assert result.leaked_blocks == 0 and result.aliases == 0, x
    if path not in ("swaps", "paths", "switch") and not result.unmatched:
        # Late packets were acknowledged before they were retransmitted: their nodes stay until the QP ends.
        assert w.s["nodes_used"] == 0 and not w.qp["blocks"].any(), x


def test_same_seed_gives_the_same_result(seed):
    x = Experiment(rtt_ms=0.2, loss=0.01, back_loss=0.01, swap=0.01, seed=seed, qps=4)

    def outcome(x):
        return {name: value for name, value in dataclasses.asdict(measure(x)).items()
                if name not in ("seconds", "packets_per_second", "completion_ms")}

    first = outcome(x)
    assert outcome(x) == first, x
    assert outcome(x.with_(seed=seed + 1)) != first, x


def test_every_scheme_has_the_same_losses(seed):
    x = Experiment(rtt_ms=0.5, loss=0.01, burst=8, burst_loss=0.01, comb=500, seed=seed)
    schemes = "oracle", "adamap", "go-back-n", "melo"
    lost = {measure(x.with_(scheme=scheme)).lost for scheme in schemes}
    assert len(lost) == 1, (x, lost)


def test_bursts_have_the_configured_length_and_share(seed):
    x = Experiment(scheme="go-back-n", rtt_ms=0.5, burst=64, burst_loss=0.1, measured_rtts=200, seed=seed)
    result = measure(x)
    bursts = result.lost / 64
    assert result.lost / result.packets == pytest.approx(0.1, rel=8 / bursts ** 0.5), x


@pytest.mark.parametrize(("changes", "words"), [
    ({"scheme": "tcp"}, "choose one of"), ({"rate_gbps": 0}, "from 1 to 800"), ({"loss": float("nan")}, "loss"),
    ({"pmtu": 1500}, "1024"), ({"qps": 0}, "qps"), ({"paths": 3}, "choose one of 1, 2, 4, 8"),
    ({"reorder": 256}, "window"), ({"window_bits": 100}, "power of two"), ({"blocks": 9, "qps": 10}, "owed one each"),
    ({"rtt_ms": "long"}, "rtt_ms"), ({"node_age_us": 9000}, "to 8388.608"),
])
def test_impossible_settings_raise_a_sentence(changes, words):
    with pytest.raises(ValueError, match=words):
        Experiment(**changes)
