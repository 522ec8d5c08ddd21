"""Messages over connections in memory: all arrive in order, every send finds a receive, and no credit is lost."""

import pytest

from weft.driver.channel.credits import Credits, pack_ack, unpack_ack
from weft.driver.channel.lanes import PeerError
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.driver.channel import card_traffic, traffic

SEED = drawn_seed(__name__)
MESSAGES = 10_000   # a million in `python -m weft.tb.test.driver.channel traffic`
MESSAGES_OVER_CARDS = 600    # a million in `python -m weft.tb.test.driver.channel traffic --cards`


@pytest.fixture(autouse=True)
def seed():
    print(f"again: WEFT_SEED={SEED} python -m pytest tb/test/driver/channel/test_traffic.py")


def test_all_messages_arrive():
    total = traffic.run(MESSAGES, SEED)
    print(total)
    assert total["data_sent"] == total["data_received"] == MESSAGES
    assert total["acks_sent"] == total["acks_received"] > MESSAGES / 20
    assert total["waited"] > MESSAGES / 4
    assert total["last_receives"], "no send ever took the last receive"


def test_all_messages_arrive_over_cards_that_lose_frames():
    """A send that finds no receive would end the connection."""
    total = card_traffic.run(MESSAGES_OVER_CARDS, SEED)
    print(total)
    assert total["data_sent"] == total["data_received"] == MESSAGES_OVER_CARDS
    assert total["acks_sent"] == total["acks_received"] > 0 and total["frames_lost"]


def too_early(credits, work):
    """Treat a completion as an acknowledgement."""
    credits.lanes[work].remote_remain = credits.lanes[work].capacity


def one_less(credits, work):
    """Acknowledge one message less than was received."""
    if credits.data.owed > 1:
        credits.data.owed -= 1


@pytest.mark.parametrize("fault", [too_early, one_less])
def test_fault_is_detected(monkeypatch, fault):
    sent = Credits.sent

    def wrong(credits, work):
        fault(credits, work)
        return sent(credits, work)
    monkeypatch.setattr(Credits, "sent", wrong)
    # The channel itself may be first to notice counts that do not agree.
    noticed = pytest.raises((AssertionError, PeerError), match="credits for|the peer acknowledged")
    with noticed:
        traffic.run(MESSAGES, SEED)
    with noticed:
        card_traffic.run(MESSAGES, SEED)


def test_an_acknowledgement_is_two_counts_of_16_bits():
    assert pack_ack(0x1234, 0x5678) == 0x12345678
    for counts in ((0, 0), (0xFFFF, 0), (0, 0xFFFF), (0xFFFF, 0xFFFF)):
        assert unpack_ack(pack_ack(*counts)) == counts
