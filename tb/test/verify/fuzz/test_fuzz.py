"""A small part of ``weft bench --only fuzz``, with a new random seed; ``WEFT_SEED`` repeats one."""


import pytest

from weft.driver.terms.enums import WCOpcode, WCStatus
from weft.driver.terms.wc import WC
from weft.driver.verbs.mr import MR
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.hostile.fuzzed_frames import KINDS, FrameFuzzer
from weft.tb.test.verify.bench.command import bench
from weft.tb.verify.fuzz import figures, functional
from weft.tb.verify.fuzz.rtl_cases import fuzz_rtl

SEED = drawn_seed(__name__)
FUNCTIONAL, RTL = 6_000, 1_200
# Too rare, or impossible here: the MAC alone detects a bad FCS, and no command is given.
SEEN = {"bad_icrc", "bad_header", "truncated", "length_mismatch", "unknown_opcode", "unknown_qp", "stale_psn"}


def test_random_frames_do_not_affect_functional_cards():
    print(f"WEFT_SEED={SEED} pytest tb/test/verify/fuzz/test_fuzz.py -k functional")
    outcome = functional.fuzz(FUNCTIONAL, SEED)
    assert not outcome.failures, "\n".join(outcome.failures)
    assert sum(outcome.kinds.values()) == outcome.frames == FUNCTIONAL and len(outcome.kinds) == len(KINDS)
    assert {f"drop_{name}" for name in SEEN} <= set(outcome.drops), outcome.drops


def test_random_frames_do_not_affect_rtl_cards(monkeypatch, tmp_path):
    outcomes = []

    def kept(count, **options):
        outcomes.append(fuzz_rtl(count, **options))
        return outcomes[0]

    for name, value in (("RTL", RTL), ("FUNCTIONAL", 100), ("fuzz_rtl", kept)):
        monkeypatch.setattr(figures, name, value)
    bench(monkeypatch, tmp_path, "--only", "fuzz")
    [outcome] = outcomes
    assert outcome["frames"] >= RTL and len(outcome["kinds"]) == len(KINDS)
    assert all({"bad_icrc", "bad_header", "truncated", "length_mismatch"} <= set(drops)
               for drops in outcome["drops"].values()), outcome["drops"]


def _plant(fault, spot, monkeypatch):
    """Plant a fault that a round must detect."""
    if fault == "completion":
        spot.cqs[0].push(WC(9, WCStatus.SUCCESS, WCOpcode.RECV, qp_num=1))
    elif fault == "bytes":
        read = MR.read
        monkeypatch.setattr(MR, "read", lambda mr, *place: bytes([read(mr, *place)[0] ^ 1]) + read(mr, *place)[1:])
    elif fault == "growth":
        spot.pair.contexts[0].leak = [0] * 100
    else:
        raise RuntimeError("planted")


@pytest.mark.parametrize(("fault", "words"), [("completion", "of nothing"), ("bytes", "bytes differ"),
                                              ("growth", "leak"), ("exception", "planted")])
def test_round_detects_faults(fault, words, monkeypatch):
    class Round(functional.Round):
        def run(self, frames):
            draw, planted = FrameFuzzer.draw, []

            def drawn(fuzzer):
                if not planted:
                    planted.append(True)
                    _plant(fault, self, monkeypatch)
                return draw(fuzzer)

            monkeypatch.setattr(FrameFuzzer, "draw", drawn)
            return super().run(frames)

    monkeypatch.setattr(functional, "Round", Round)
    outcome = functional.fuzz(100, SEED)
    assert len(outcome.failures) == 1 and words in outcome.failures[0], outcome
