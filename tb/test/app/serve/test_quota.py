"""Tests of quotas of programs: a request beyond a quota is rejected or ends the program.

The other programs keep their resources, and all resources are released.
"""

import errno
import itertools
import os
import random
import resource

import pytest

from weft.driver.ibverbs.messages import Kind, Opcode
from weft.driver.serve.program_memory import Coverage
from weft.driver.serve.quota import (
    DESCRIPTORS_KEPT,
    DESCRIPTORS_OF_PROGRAM,
    OF_ALL,
    Account,
    ResourceKind,
    of_this_process,
)
from weft.driver.terms.enums import QPType
from weft.driver.terms.errors import OutOfResources
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.programs.hostile import pair, settle, works
from weft.tb.verify.programs.local import local_daemon
from weft.tb.verify.programs.raw_client import PAGE, Disconnected, RawClient, Rejected

AT = 0x7000_0000_0000     # of regions, which nothing accesses
ROUNDS, QUEUE = 300, {"max_send_wr": 4, "max_recv_wr": 4, "max_send_sge": 1, "max_recv_sge": 1}


def limited(**most):
    """Start a daemon with these limits for all programs together."""
    return local_daemon(most=OF_ALL | {ResourceKind[name.upper()]: value for name, value in most.items()})


def make(client, opcode, files=(), **fields):
    """Create an object and close the files that it comes with; return its handle."""
    made, out = client.call(opcode, files=files, **fields)
    for file in out:
        os.close(file)
    return made.handle


def region(client, first, pages):
    """Return the handle of a region of the client's memory, from its page ``first`` on."""
    at = AT + first * PAGE
    return make(client, Opcode.REG_MR, pd=client.pd, memory=client.memory_handle, address=at, iova=at,
                length=pages * PAGE)


def with_pd(client):
    """Give a client a PD and its memory, and return it."""
    client.pd, client.memory_handle, client.pages = make(client, Opcode.ALLOC_PD), client.share(), itertools.count()
    return client


def pages_of(mrs):
    """Return the pages that at least one region has."""
    return {page for mr in mrs for page in range(mr.buffer.va, mr.buffer.va + mr.buffer.size, PAGE)}


def queue_pair(client, pd, cq):
    return make(client, Opcode.CREATE_QP, pd=pd, send_cq=cq, recv_cq=cq, qp_type=QPType.RC, **QUEUE)


MAKERS = {
    Kind.PD: lambda client, _: make(client, Opcode.ALLOC_PD),
    Kind.MEMORY: lambda client, _: client.share(),
    Kind.MR: lambda client, rng: region(client, rng.randrange(8), rng.randrange(1, 5)),      # many overlap
    Kind.CHANNEL: lambda client, _: make(client, Opcode.CREATE_CHANNEL),
    Kind.CQ: lambda client, rng: make(client, Opcode.CREATE_CQ, cqe=rng.randrange(1, 100)),
    Kind.QP: lambda client, _: queue_pair(client, client.pd, client.cq),
}


def attempt(maker, *arguments):
    """Return the created object, or None if it is beyond a limit."""
    try:
        return maker(*arguments)
    except Rejected as refusal:
        number, sentence = refusal.args
    assert number == errno.ENOMEM
    assert "at most" in sentence
    return None


def test_total_account_is_the_sum_of_its_parts():
    whole = Account(dict.fromkeys(ResourceKind, 10))
    parts = [Account(dict.fromkeys(ResourceKind, 7), whole) for _ in range(3)]
    rng, refused = random.Random(drawn_seed()), 0
    for _ in range(2000):
        part, subject, amount = rng.choice(parts), rng.choice(list(ResourceKind)), rng.randrange(5)
        if rng.random() < 0.5 and part.has[subject] >= amount:
            part.release({subject: amount})
            continue
        before = part.has[subject]
        space = min(7 - before, 10 - whole.has[subject])
        try:
            part.take({subject: amount})
            assert amount <= space
        except OutOfResources:
            refused += 1
            assert amount > space and part.has[subject] == before
        assert whole.has == {one: sum(each.has[one] for each in parts) for one in ResourceKind}
    assert refused
    for part in parts:
        part.close()
    assert not any(whole.has.values())


def test_coverage_is_the_union_of_its_ranges():
    rng, coverage, ranges, most = random.Random(drawn_seed()), Coverage(), [], 0
    for _ in range(3000):
        before = {number for each in ranges for number in each}
        if ranges and rng.random() < len(ranges) / 20:
            part = ranges.pop(rng.randrange(len(ranges)))
            changed = coverage.remove(part.start, part.stop)
        else:
            first = rng.randrange(40)
            ranges.append(part := range(first, first + rng.randrange(1, 12)))
            changed = coverage.add(part.start, part.stop)
        after = {number for each in ranges for number in each}
        assert changed == len(before ^ after)
        most = max(most, len(ranges))
    assert most > 10
    for part in ranges:
        coverage.remove(part.start, part.stop)
    assert coverage.add(0, 100) == 100


def test_memory_quota_counts_a_page_once():
    """As for pinned memory, regions of the same pages cost them once, and those of the last region are released."""
    with limited(memory=4 * PAGE) as (daemon, messages):
        client = with_pd(RawClient(daemon, "a").greet())
        handles = [region(client, 0, 4) for _ in range(3)] + [region(client, first, 1) for first in range(4)]
        assert attempt(region, client, 3, 2) is None
        for handle in handles[:-1]:
            client.call(Opcode.DESTROY, kind=Kind.MR, handle=handle)
        assert attempt(region, client, 4, 3) is not None and attempt(region, client, 0, 1) is None
        assert daemon.account.has[ResourceKind.MEMORY] == 4 * PAGE
        client.close()
        settle(daemon, 0)
        assert not messages


def test_descriptor_quota_follows_the_process_limit():
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert of_this_process()[ResourceKind.DESCRIPTORS] <= limit - DESCRIPTORS_KEPT


@pytest.mark.parametrize(("kind", "most"), [
    (Kind.PD, {"objects": 12}), (Kind.MEMORY, {"descriptors": 16}), (Kind.MR, {"memory": 12 * PAGE}),
    (Kind.CHANNEL, {"descriptors": 14}),
    (Kind.CQ, {"rings": 100_000}), (Kind.CQ, {"mappings": 16}), (Kind.QP, {"requests": 90})])
def test_request_beyond_the_quota_is_rejected_and_others_are_served(kind, most):
    with limited(**most) as (daemon, messages):
        good = pair(daemon) if kind is not Kind.CHANNEL else ()
        greedy, rng = RawClient(daemon, "a").greet(), random.Random(1)
        if kind is Kind.MR:
            with_pd(greedy)
        if kind is Kind.QP:
            greedy.pd, greedy.cq = make(greedy, Opcode.ALLOC_PD), make(greedy, Opcode.CREATE_CQ, cqe=1)
        made, maker = [], MAKERS[kind]
        if kind is Kind.MR:
            maker = lambda client, _: region(client, next(client.pages), 1)     # noqa: E731
        while (handle := attempt(maker, greedy, rng)) is not None:
            made.append(handle)
        assert made
        greedy.call(Opcode.DESTROY, kind=kind, handle=made[0])
        if kind in (Kind.PD, Kind.MEMORY, Kind.CHANNEL, Kind.QP):
            # All of one size: one more can be created now, but not two.
            assert attempt(MAKERS[kind], greedy, rng) is not None
            assert attempt(MAKERS[kind], greedy, rng) is None
        if good:
            works(*good)
            works(*good[::-1])
        for client in (greedy, *good):
            client.close()
        settle(daemon, 0)
        assert not messages


def test_program_beyond_the_quota_is_rejected():
    with limited(descriptors=3 * DESCRIPTORS_OF_PROGRAM) as (daemon, messages):
        clients = [RawClient(daemon, "a").greet() for _ in range(3)]
        with pytest.raises(Disconnected):
            RawClient(daemon, "a").greet()
        assert "turned away" in messages[0]
        clients.pop().close()
        settle(daemon, 2)
        clients.append(RawClient(daemon, "b").greet())
        for client in clients:
            client.close()
        settle(daemon, 0)


def test_unread_events_disconnect_their_program():
    with limited(events=50) as (daemon, messages):
        clients = [RawClient(daemon, "a").greet() for _ in range(2)]
        one, other = daemon.clients.values()
        for _ in range(100_000):
            daemon._with(one, lambda: one.async_events.notify(bytes(16)))
            if len(daemon.clients) == 1:
                break
        assert "events that are not read" in messages[0]
        assert list(daemon.clients.values()) == [other]
        for client in clients:
            client.close()
        settle(daemon, 0)


def test_every_allocation_and_release_is_counted():
    seed = drawn_seed()
    print("seed", seed)
    rng, most = random.Random(seed), {"objects": 24, "memory": 8 * PAGE, "requests": 70, "mappings": 16}
    with limited(**most) as (daemon, messages):
        client, refused = with_pd(RawClient(daemon, "a").greet()), set()
        client.cq = make(client, Opcode.CREATE_CQ, cqe=1)
        made = {kind: [] for kind in MAKERS}
        for _ in range(ROUNDS):
            kind = rng.choice(list(MAKERS))
            if made[kind] and rng.random() < 0.4:
                client.call(Opcode.DESTROY, kind=kind, handle=made[kind].pop(rng.randrange(len(made[kind]))))
                continue
            if (handle := attempt(MAKERS[kind], client, rng)) is None:
                refused.add(kind)
            else:
                made[kind].append(handle)
            if made[Kind.CQ] and rng.random() < 0.2:
                make(client, Opcode.RESIZE_CQ, handle=rng.choice(made[Kind.CQ]), cqe=rng.randrange(1, 200))
            (served,) = daemon.clients.values()
            assert daemon.account.has == served.account.has
            assert served.account.has[ResourceKind.OBJECTS] == 3 + sum(map(len, made.values()))
            regions = served.objects[Kind.MR].values()
            assert served.account.has[ResourceKind.MEMORY] == PAGE * len(pages_of(regions))
            assert [memory.users for memory in served.objects[Kind.MEMORY].values()][0] == len(regions)
            given = 1 + len(made[Kind.MEMORY]) + len(made[Kind.CHANNEL])
            assert served.account.has[ResourceKind.DESCRIPTORS] == DESCRIPTORS_OF_PROGRAM + given
            rings = [thing.ring for thing in served.objects[Kind.CQ].values()]
            rings += [ring for qp in served.objects[Kind.QP].values() for ring in (qp.sends, qp.receives)]
            assert served.account.has[ResourceKind.RINGS] == sum(len(ring.mapping) for ring in rings)
            assert served.account.has[ResourceKind.MAPPINGS] == 1 + len(rings)
        assert refused
        client.close()
        settle(daemon, 0)
        assert not messages
