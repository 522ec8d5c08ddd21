"""Credits of one end, event by event."""

import pytest

from weft.driver.channel.capacities import CAPACITY_MAX, Capacities
from weft.driver.channel.credits import Credits, Post, Work, pack_ack
from weft.driver.channel.lanes import ChannelError, PeerError


def ack(data, imm):
    return Post(Work.IMM, pack_ack(data, imm))


def take(credits, count=1):
    """Receive ``count`` messages and repost their receives; return the resulting posts."""
    return sum((credits.received_data() + credits.reposted(Work.DATA) for _ in range(count)), [])


def take_ack(credits, data, imm):
    return credits.received_ack(pack_ack(data, imm)) + credits.reposted(Work.IMM)


def remaining(credits):
    return (credits.send_data_local_remain, credits.send_imm_local_remain,
            credits.send_data_remote_remain, credits.send_imm_remote_remain)


def test_queues_are_as_large_as_all_that_may_be_posted():
    capacities = Capacities(8, 4, max_read_wr=3, max_write_wr=2)
    assert capacities.max_send_wr == 8 + 4 + 3 + 2
    assert capacities.max_recv_wr == 8 + 4
    assert capacities.max_cqe == 17 + 12


@pytest.mark.parametrize(("capacity", "threshold"), [(1, 0), (2, 1), (3, 1), (4, 2), (CAPACITY_MAX, 32767)])
def test_thresholds_are_half_of_the_capacities(capacity, threshold):
    capacities = Capacities(capacity, capacity)
    assert capacities.data_threshold == capacities.imm_threshold == threshold


@pytest.mark.parametrize(("given", "message"), [
    ({"max_send_data_wr": 0}, "max_send_data_wr is 0; 1 to 65535"),
    ({"max_send_data_wr": 65_536}, "max_send_data_wr is 65536; 1 to 65535"),
    ({"max_send_imm_wr": 0}, "max_send_imm_wr is 0; 1 to 65535"),
    ({"max_send_imm_wr": 65_536}, "max_send_imm_wr is 65536; 1 to 65535"),
    ({"max_read_wr": -1}, "max_read_wr is -1; 0 to 65535"),
    ({"max_write_wr": 65_536}, "max_write_wr is 65536; 0 to 65535"),
    ({"data_threshold": 8}, "data_threshold is 8; 2 to 7"),
    ({"data_threshold": 1}, "data_threshold is 1; 2 to 7"),
    ({"imm_threshold": 0}, "imm_threshold is 0; 1 to 3"),
    ({"imm_threshold": 4}, "imm_threshold is 4; 1 to 3"),
    ({"max_send_imm_wr": 1, "imm_threshold": 1}, "imm_threshold is 1; 0 to 0"),
])
def test_impossible_capacities_are_rejected(given, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Capacities(**({"max_send_data_wr": 8, "max_send_imm_wr": 4} | given))


@pytest.mark.parametrize("given", [2.0, "2", None])
def test_a_capacity_is_an_integer(given):
    with pytest.raises(TypeError):
        Capacities(given, 2)


def test_one_credit_for_acknowledgements_needs_an_end_that_yields():
    with pytest.raises(ValueError, match="one end has to yield"):
        Credits(Capacities(4, 1))
    assert Credits(Capacities(4, 1), yields=True).yields
    assert Credits(Capacities(4, 2)).yields is False


def test_post_takes_two_credits_that_return_separately():
    credits = Credits(Capacities(3, 2))
    assert remaining(credits) == (3, 2, 3, 2)
    assert credits.want(Work.DATA, "a") == [Post(Work.DATA, "a")]
    assert remaining(credits) == (2, 2, 2, 2)
    assert credits.sent(Work.DATA) == []
    assert remaining(credits) == (3, 2, 2, 2)
    assert take_ack(credits, 1, 0) == []
    assert remaining(credits) == (3, 2, 3, 2)


def test_a_message_waits_for_the_completion_of_an_older_one():
    credits = Credits(Capacities(1, 2))
    credits.want(Work.DATA, "a")
    assert credits.want(Work.DATA, "b") == [] and list(credits.waiting[Work.DATA]) == ["b"]
    assert take_ack(credits, 1, 0) == []
    assert credits.sent(Work.DATA) == [Post(Work.DATA, "b")]
    assert credits.counts["waited"] == 1


def test_a_message_waits_for_a_receive_of_the_peer():
    credits = Credits(Capacities(1, 2))
    credits.want(Work.DATA, "a")
    for item in "bc":
        assert credits.want(Work.DATA, item) == []
    assert credits.sent(Work.DATA) == []
    assert take_ack(credits, 1, 0) == [Post(Work.DATA, "b")]


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 5])
def test_more_messages_than_half_are_acknowledged_once_their_receives_are_posted(capacity):
    credits = Credits(Capacities(capacity, 2))
    assert take(credits, capacity // 2) == []
    assert credits.received_data() == [], "its receive is not posted again"
    assert credits.receives == capacity + 2 - 1
    assert credits.reposted(Work.DATA) == [ack(capacity // 2 + 1, 0)]
    assert remaining(credits) == (capacity, 1, capacity, 1)


@pytest.mark.parametrize("capacity", [2, 3, 4, 5])
def test_more_acknowledgements_than_half_are_acknowledged(capacity):
    credits = Credits(Capacities(capacity, capacity))
    posts = []
    for _ in range(capacity // 2 + 1):
        assert posts == []
        credits.want(Work.DATA, None)
        posts = take_ack(credits, 1, 0)
    assert posts == [ack(0, capacity // 2 + 1)]


def test_delayed_acknowledgement_covers_later_messages():
    credits = Credits(Capacities(4, 2))
    assert take(credits, 3) == [ack(3, 0)]
    assert take(credits, 3) == [ack(3, 0)]
    assert take(credits, 4) == [] and remaining(credits) == (4, 0, 4, 0)
    assert credits.sent(Work.IMM) == []
    assert take_ack(credits, 0, 2) == [ack(4, 0)], "of acknowledgements, those whose receive is posted again"
    assert credits.imm.owed == 1


def test_acknowledgement_is_sent_before_waiting_messages():
    credits = Credits(Capacities(2, 2))
    for item in "abc":
        credits.want(Work.DATA, item)
    credits.sent(Work.DATA)
    credits.sent(Work.DATA)
    take(credits)
    credits.received_data()
    credits.data.acknowledged(2)    # one event makes both possible
    assert credits.reposted(Work.DATA) == [ack(2, 0), Post(Work.DATA, "c")]


def test_reads_and_writes_have_local_credits_only():
    credits = Credits(Capacities(1, 2, max_read_wr=1, max_write_wr=2))
    assert [len(credits.want(Work.WRITE, item)) for item in "abc"] == [1, 1, 0]
    assert credits.want(Work.READ, "d") == [Post(Work.READ, "d")]
    assert credits.want(Work.DATA, "e") == [Post(Work.DATA, "e")], "each kind waits for itself"
    assert credits.sent(Work.READ) == []
    assert credits.sent(Work.WRITE) == [Post(Work.WRITE, "c")]
    with pytest.raises(ValueError, match="without capacity for a read"):
        Credits(Capacities(1, 2)).want(Work.READ, "f")


def test_yielding_end_lets_the_peer_begin():
    """With one acknowledgement credit, two acknowledgements that cross would be the last ones."""
    for yields, posts in ((True, []), (False, [ack(2, 0)])):
        credits = Credits(Capacities(2, 1), yields=yields)
        credits.want(Work.DATA, "a")
        assert take(credits, 2) == [ack(2, 0)], "the peer has too little to acknowledge"
        credits = Credits(Capacities(2, 1), yields=yields)
        credits.want(Work.DATA, "a")
        credits.want(Work.DATA, "b")
        assert take(credits, 2) == posts
    credits = Credits(Capacities(2, 1), yields=True)
    for item in "ab":
        credits.want(Work.DATA, item)
    take(credits, 2)
    assert take_ack(credits, 2, 0) == [ack(2, 1)]


def test_acknowledgement_with_one_credit_is_answered_when_needed():
    credits = Credits(Capacities(2, 1), yields=False)
    credits.want(Work.DATA, "a")
    assert take_ack(credits, 1, 0) == []
    assert credits.want(Work.DATA, "b") == [Post(Work.DATA, "b")]
    assert credits.sent(Work.DATA) == []
    assert credits.want(Work.DATA, "c") == [Post(Work.DATA, "c"), ack(0, 1)]


LIES = [
    (lambda c: c.received_ack(pack_ack(2, 0)), "acknowledged 2 messages; 1 were outstanding"),
    (lambda c: c.received_ack(pack_ack(0, 1)), "acknowledged 1 acknowledgements; 0 were outstanding"),
    (lambda c: c.received_ack(0), "acknowledged nothing"),
    (lambda c: [c.received_data() for _ in range(5)], "sent more than 4 messages"),
    (lambda c: [(c.want(Work.DATA, None), c.received_ack(pack_ack(1, 0))) for _ in range(3)],
     "sent more than 2 acknowledgements"),
]


@pytest.mark.parametrize(("lie", "message"), LIES, ids=[message for _, message in LIES])
def test_invalid_acknowledgement_ends_the_connection(lie, message):
    credits = Credits(Capacities(4, 2))
    credits.want(Work.DATA, "a")
    with pytest.raises(PeerError, match=message):
        lie(credits)
    assert credits.counts["peer_errors"] == 1 and not any(credits.waiting.values())
    for event in (lambda: credits.want(Work.DATA, "b"), lambda: credits.sent(Work.DATA), credits.received_data,
                  lambda: credits.received_ack(1), lambda: credits.reposted(Work.DATA), credits.check):
        with pytest.raises(ChannelError, match=message):
            event()
    assert credits.counts["peer_errors"] == 1


def test_impossible_events_are_rejected():
    credits = Credits(Capacities(4, 2, max_read_wr=1))
    for work, name in ((Work.DATA, "message"), (Work.IMM, "acknowledgement"), (Work.READ, "read")):
        with pytest.raises(ValueError, match=f"a {name} completed, but none is outstanding"):
            credits.sent(work)
    for work in (Work.DATA, Work.IMM):
        with pytest.raises(ValueError, match="no receive of"):
            credits.reposted(work)
    for value in (-1, 1 << 32):
        with pytest.raises(ValueError, match="value is"):
            credits.received_ack(value)
    credits.check()
