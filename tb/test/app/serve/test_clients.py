"""Tests of programs that end or break the rules: the daemon frees their resources and serves the others."""

import fcntl
import itertools
import mmap
import os
import random

import pytest

from weft.driver.ibverbs.messages import Kind, Opcode
from weft.driver.serve.client import WAITING
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.programs.hostile import (
    COMMAND,
    GROWN_MAX,
    Guarded,
    Held,
    clean,
    close_all,
    fuzz,
    pair,
    settle,
    works,
)
from weft.tb.verify.programs.local import POLLED, local_daemon
from weft.tb.verify.programs.raw_client import PAGE, SLOTS, Disconnected, RawClient, RawEnd, Rejected

MESSAGES_SENT, ROUNDS, TURNS = 1500, 8, 24
FAR_NS = 100_000


@pytest.fixture(params=POLLED.values(), ids=POLLED)
def served(request):
    with local_daemon(backend_type=request.param) as (daemon, messages):
        yield daemon, messages


def test_ended_program_leaves_nothing_and_its_peer_is_notified(served):
    daemon, messages = served
    for end in range(ROUNDS):
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
        clean(daemon.backend)
    assert not messages


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
        sent = {name: link.counters.sent.total() for name, link in daemon.backend.links.items()}
        assert all(sent.values()), sent


def test_requests_to_an_ended_program_time_out():
    """Requests that arrive while a QP is destroyed get no NAK, but time out.

    So does a mailbox request that the peer acknowledged, but did not answer before it ended.
    """
    rejected = 0
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
            rejected += bad != []
            assert not bad or bad[0] == WCStatus.RETRY_EXC_ERR, f"{bad} after {turns} turns"
            left.close()
            settle(daemon, 0)
    assert rejected


@pytest.mark.parametrize(("ring", "change"), [
    ("sends", lambda end, rng: end.sends.word("prod", rng.randrange(end.sends.slots + 2, 1 << 32))),
    ("receives", lambda end, rng: end.receives.word("prod", rng.randrange(end.receives.slots + 2, 1 << 32))),
    ("sends", lambda end, rng: end.sends.fill(b"\xff" * 48)),
    ("receives", lambda end, rng: end.receives.fill(b"\xff" * 16)),
])
def test_invalid_ring_disconnects_its_program(served, ring, change):
    daemon, messages = served
    good = pair(daemon)
    bad, peer = pair(daemon)
    change(bad, random.Random(ring))
    bad.ring_bell()
    peer.write(bad, opcode=WROpcode.SEND)      # for a back end that reads receive requests when it needs them
    settle(daemon, 3)
    (sentence,) = messages
    assert "was dropped" in sentence
    with pytest.raises(Disconnected):
        bad.call(Opcode.QUERY_DEVICE)
    works(*good)
    works(*good[::-1])


def test_short_completion_queue_holds_late_completions(served):
    """``ib_send_lat -e`` has one entry, and is one completion late after each lost acknowledgement."""
    daemon, messages = served
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
    assert not messages
    for end in ends:
        end.close()


def test_invalid_completion_queue_indices_are_rejected(served):
    daemon, messages = served
    a, b = pair(daemon)
    a.completions.word("cons", 12345)
    a.write(b)
    settle(daemon, 1)
    assert "filled ones" in messages[0]


def test_invalid_messages_do_not_affect_other_programs(served):
    daemon, messages = served
    seed = drawn_seed()
    print("again:", COMMAND.format(count=MESSAGES_SENT, seed=seed))
    campaign = fuzz(daemon, messages, MESSAGES_SENT, random.Random(seed))
    assert campaign.done == MESSAGES_SENT
    assert all(campaign.found[kind] for kind in ("answered", "refused", "dropped", "entries", "ended", "exchanges"))


@pytest.mark.parametrize("where", [0, -1])
def test_a_byte_outside_of_a_region_is_noticed(served, where):
    daemon, _ = served
    end = Guarded(daemon, "a")
    end.untouched()
    end._whole[where] ^= 1
    with pytest.raises(AssertionError, match="outside of the region"):
        end.untouched()


def ring_mapping():
    file = os.memfd_create("ring")
    os.ftruncate(file, PAGE)
    try:
        return mmap.mmap(file, PAGE)      # has a copy of the descriptor
    finally:
        os.close(file)


def resident_memory():
    memory = mmap.mmap(-1, 2 * GROWN_MAX)       # not of the heap, which may have as much freed memory
    memory.write(bytes([1]) * len(memory))
    return memory


@pytest.mark.parametrize("kept", [lambda: os.eventfd(0), ring_mapping, resident_memory])
def test_what_a_daemon_keeps_is_noticed(kept):
    held = Held.now()
    held.check()
    more = kept()
    with pytest.raises(AssertionError, match="before"):
        held.check()
    if isinstance(more, int):
        os.close(more)


def test_blocking_files_of_a_program_do_not_block_the_daemon(served):
    daemon, messages = served
    bad = RawClient(daemon, "a")
    _, files = bad.call(Opcode.HELLO)
    for file in files:
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    (program,) = daemon.clients.values()
    for waits in (0, 1):
        program.bell[WAITING], program.has_events = waits, True
        program.notify()
        program.fall_asleep()
        program.wake_up()
    assert os.read(files[2], 64) == b"\1"
    close_all(files)
    good = pair(daemon)
    works(*good)
    assert not messages


def test_rules_have_messages(served):
    daemon, _ = served
    client = RawClient(daemon, "a").greet()
    for opcode, fields, sentence in (
            (Opcode.CREATE_CQ, {"cqe": 0}, "1 to"), (Opcode.CREATE_CQ, {"cqe": 1, "channel": 7}, "no CHANNEL 7"),
            (Opcode.DESTROY, {"kind": Kind.PD, "handle": 9}, "no PD 9"),
            (Opcode.CREATE_QP, {"pd": 1}, "no CQ 0"), (Opcode.REG_MR, {"memory": 8}, "no MEMORY 8"),
            (Opcode.SHARE, {}, None)):
        with pytest.raises(Disconnected if sentence is None else Rejected, match=sentence):
            client.call(opcode, **fields)
