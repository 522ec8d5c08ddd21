"""Tests of programs that end or break the rules: the daemon frees their resources and serves the others."""

import fcntl
import itertools
import os
import random

import pytest

from weft.driver.ibverbs.messages import Kind, Opcode
from weft.driver.serve.client import WAITING
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.programs.hostile import COMMAND, clean, close_all, fuzz, pair, settle, works
from weft.tb.verify.programs.local import local_daemon
from weft.tb.verify.programs.raw_client import SLOTS, Gone, RawClient, RawEnd, Refused

MESSAGES_SAID, LIVES, TURNS = 1500, 8, 24
FAR_NS = 100_000


@pytest.fixture
def served():
    with local_daemon() as (daemon, said):
        yield daemon, said


def test_a_program_that_ends_leaves_nothing_and_its_peer_is_told(served):
    daemon, said = served
    for end in range(LIVES):
        ends = pair(daemon)
        works(*ends)
        gone, left = ends if end % 2 else ends[::-1]
        for n in range(end):
            gone.write(left, n)      # partly outstanding when it ends
        gone.close()
        settle(daemon, 1)
        left.write(gone)
        assert left.completion().status == WCStatus.RETRY_EXC_ERR
        left.close()
        settle(daemon, 0)
        clean(daemon.world)
    assert not said


@pytest.mark.parametrize("simulated", [False, True])
def test_each_of_several_hosts_reaches_every_other(simulated):
    with local_daemon("abcd", simulated=simulated, loss=0.01) as (daemon, _):
        for one, other in itertools.combinations("abcd", 2):
            ends = RawEnd(daemon, one), RawEnd(daemon, other)
            for end, peer in (ends, ends[::-1]):
                end.connect(peer, retry_cnt=7)
            for _ in range(3):
                works(*ends)
                works(*ends[::-1])
        sent = {name: link.counters.sent.total() for name, link in daemon.world.links.items()}
        assert all(sent.values()), sent


def test_whatever_a_peer_was_asked_for_when_it_ended_its_silence_is_what_is_told():
    """Requests that arrive while a QP is destroyed get no NAK, but time out.

    So does a mailbox request that the peer acknowledged, but did not answer before it ended.
    """
    told = 0
    with local_daemon(delay_ns=FAR_NS) as (daemon, _):
        for turns in range(TURNS):
            gone, left = pair(daemon)
            if turns % 2:
                works(left, gone)
            for n in range(SLOTS - 2):
                left.write(gone, n, WROpcode.RDMA_READ)
                gone.write(left, n, WROpcode.RDMA_READ if turns % 4 > 1 else WROpcode.RDMA_WRITE)
            for _ in range(turns):
                daemon.turn()
            gone.close()
            bad = [wc.status for wc in left.completed(SLOTS - 2) if wc.status != WCStatus.SUCCESS]
            told += bad != []
            assert not bad or bad[0] == WCStatus.RETRY_EXC_ERR, f"{bad} after {turns} turns"
            left.close()
            settle(daemon, 0)
    assert told


@pytest.mark.parametrize(("ring", "change"), [
    ("sends", lambda end, rng: end.sends.word("prod", rng.randrange(end.sends.slots + 2, 1 << 32))),
    ("receives", lambda end, rng: end.receives.word("prod", rng.randrange(end.receives.slots + 2, 1 << 32))),
    ("sends", lambda end, rng: end.sends.fill(b"\xff" * 48)),
    ("receives", lambda end, rng: end.receives.fill(b"\xff" * 16)),
])
def test_a_ring_that_makes_no_sense_costs_its_program(served, ring, change):
    daemon, said = served
    good = pair(daemon)
    bad, peer = pair(daemon)
    change(bad, random.Random(ring))
    bad.ring_bell()
    settle(daemon, 3)
    (sentence,) = said
    assert "was dropped" in sentence
    with pytest.raises(Gone):
        bad.call(Opcode.QUERY_DEVICE)
    works(*good)
    works(*good[::-1])


def test_a_short_completion_queue_has_room_for_what_is_taken_late(served):
    """``ib_send_lat -e`` has one entry, and is one completion late after each lost acknowledgement."""
    daemon, said = served
    ends = [RawEnd(daemon, host, cqe=1) for host in "ab"]
    for end, peer in (ends, ends[::-1]):
        end.connect(peer)
    count = SLOTS - 2
    for n in range(count):
        ends[0].write(ends[1], n)
    for _ in range(TURNS):
        if ends[0].sends.word("done") == count:
            break
        daemon.turn()
    assert ends[0].sends.word("done") == ends[0].sends.word("prod") == count
    assert [wc.status for wc in ends[0].completions.take()] == [WCStatus.SUCCESS] * count
    assert not said
    for end in ends:
        end.close()


def test_a_completion_queue_that_is_not_believed(served):
    daemon, said = served
    a, b = pair(daemon)
    a.completions.word("cons", 12345)
    a.write(b)
    settle(daemon, 1)
    assert "filled ones" in said[0]


def test_whatever_programs_say_the_others_are_served(served):
    daemon, said = served
    seed = drawn_seed()
    print("again:", COMMAND.format(count=MESSAGES_SAID, seed=seed))
    found = fuzz(daemon, said, MESSAGES_SAID, random.Random(seed))
    assert all(found.values()), found


def test_files_that_a_program_makes_blocking_hold_nobody_up(served):
    daemon, said = served
    bad = RawClient(daemon, "a")
    _, files = bad.call(Opcode.HELLO)
    for file in files:
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    (program,) = daemon.clients.values()
    for waits in (0, 1):
        program.bell[WAITING], program.news = waits, True
        program.tell()
        program.fall_asleep()
        program.wake_up()
    assert os.read(files[2], 64) == b"\1"
    close_all(files)
    good = pair(daemon)
    works(*good)
    assert not said


def test_rules_have_sentences(served):
    daemon, _ = served
    client = RawClient(daemon, "a").greet()
    for opcode, fields, sentence in (
            (Opcode.CREATE_CQ, {"cqe": 0}, "1 to"), (Opcode.CREATE_CQ, {"cqe": 1, "channel": 7}, "no CHANNEL 7"),
            (Opcode.DESTROY, {"kind": Kind.PD, "handle": 9}, "no PD 9"),
            (Opcode.CREATE_QP, {"pd": 1}, "no CQ 0"), (Opcode.REG_MR, {"memory": 8}, "no MEMORY 8"),
            (Opcode.SHARE, {}, None)):
        with pytest.raises(Gone if sentence is None else Refused, match=sentence):
            client.call(opcode, **fields)
