"""Lives of Adamap nodes in the RTL: no block leaks, nothing stale is accepted, and the harness would notice."""

from weft.tb.lives.rtl import live_in_rtl

LIVES = 600


def test_nodes_live_and_die():
    sums = live_in_rtl(LIVES)
    assert sums["lives"] >= LIVES and sums["leaks"] == sums["stale_accepts"] == 0, sums


def test_a_card_that_forgets_generations_is_caught():
    sums = live_in_rtl(LIVES, WEFT_FORGETFUL="1")
    assert sums["stale_accepts"], sums
