"""Software RDMA over the Simple NIC of two cards: functional cards, and the gateware."""

import errno

import pytest

from weft.tb.app.stage.stage import Stage, play
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.driver.soft import phase_two, rc_over_cards


@pytest.fixture(params=["functional", "rtl"])
def run(request):
    """Return a function that runs two programs, one on each host, and returns their results."""
    seed = drawn_seed()
    print(f"WEFT_SEED={seed} python -m pytest tb/test/driver/soft/test_two_cards.py")
    return lambda *programs: play(programs, backend=request.param, stage=Stage(seed=seed, rtt_us=1))


def test_phase_two_of_the_document(run):
    """Ping, connect, WRITE and READ between two hosts, and the table of errors row by row."""
    a, b = run(phase_two.asks, phase_two.answers)
    counts = b["counts"]
    assert a["found"] and 1_000 <= a["ping"] < phase_two.TIMEOUT_NS
    assert a["plain"] == [[1, "SUCCESS"], [2, "SUCCESS"]] and a["read"] and b["same"]
    assert a["packet loss"] == [[1, "SUCCESS"]] and a["timeouts"]
    assert a["checksum error"] == [[1, "SUCCESS"]] and a["at once"] == counts["nack_checksum"] == 1
    assert a["invalid MR"] == [[1, "SUCCESS"], [2, "REM_ACCESS_ERR"], [3, "WR_FLUSH_ERR"]]
    assert a["not connected"] == -errno.ENOTCONN and counts["nack_invalid_mr"] == 1
    in_order = [[n, "SUCCESS"] for n in range(phase_two.MESSAGES)]
    assert a["out of memory"] == a["queue full"] == in_order and counts["nack_no_memory"] and a["held back"]
    assert b["written"] == [1, 1, 1, 1, phase_two.MESSAGES, phase_two.MESSAGES]


def test_every_operation_of_rocev2(run):
    """One frame is lost."""
    a, b = run(rc_over_cards.asks, rc_over_cards.answers)
    assert a["done"] == [[n, "SUCCESS"] for n in range(len(rc_over_cards.REQUESTS))]
    size = rc_over_cards.BYTES
    assert b["done"] == [[8, "SUCCESS", 10, 1], [0, "SUCCESS", size, 0], [1, "SUCCESS", 0, 3]]
    assert a["read"] and b["written"] and b["sent"]
    assert a["before"] == [rc_over_cards.COMPARE - 1, rc_over_cards.COMPARE] and b["word"] == rc_over_cards.SWAP
    assert a["counts"]["resent"] and b["counts"]["early_packets"]
    assert a["counts"]["frames"] >= 10 and b["counts"]["frames"] >= 15
