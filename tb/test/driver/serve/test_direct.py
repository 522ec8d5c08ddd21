"""Tests of the direct back end: programs on it, and random programs on it and on functional cards."""

import os
import random
import re
import sys
import threading
import time
from pathlib import Path

import pytest

from weft.driver.datagram.packet import GRH_BYTES
from weft.driver.ibverbs.build import missing
from weft.driver.ibverbs.messages import Kind, Opcode
from weft.driver.ibverbs.rings import RECV_SLOT, SEND_SLOT, SGE_SLOT, WC_SLOT, Doorbell
from weft.driver.serve.client import ASLEEP
from weft.driver.terms.enums import QPAttrMask, QPState, QPType, SendFlags, SrqAttrMask, WCStatus, WROpcode
from weft.model.settings import BadSetting
from weft.tb.app.serve.functional import FunctionalBackend
from weft.tb.app.serve.settings import Settings
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.test.driver.serve import datagram_oracle, oracle
from weft.tb.test.driver.serve.datagram_oracle import GROUPS, QKEYS, TO_GROUP, TO_PEER, TO_SELF, Datagram, gid_of
from weft.tb.test.driver.serve.oracle import RECEIVED, SGES, Sge, until
from weft.tb.verify.programs.figures import processor_ns
from weft.tb.verify.programs.hostile import clean, pair, settle, works
from weft.tb.verify.programs.local import PolledBackend, local_daemon
from weft.tb.verify.programs.programs import PASSED, TABLE, missing_packages, one
from weft.tb.verify.programs.raw_client import PAGE, VA, Disconnected, RawEnd, Rejected, Ring, address_of
from weft.tb.verify.programs.session import serving

PORT, REQUESTS, ROUNDS_MAX, IDLE_S, CORE, END_S = 23900, 600, 20, 1, 0.05, 60
REGIONS, HELD, CALLS_REG, CALLS_DEREG = 200, 16, 115, 68
FLUSHED = 500      # more than the thread flushes at once
CHOSEN = ("ibv_rc_pingpong", "ibv_rc_pingpong -c -e", "ibv_srq_pingpong", "ib_write_bw -q 4", "ib_send_bw -e",
          "ib_read_bw", "ib_atomic_bw", "ib_write_lat", "ib_send_lat -e", "ib_send_lat -R", "rping", "fi_pingpong -c",
          "ibv_ud_pingpong", "ib_send_bw -c UD", "udaddy", "mckey")


@pytest.fixture(autouse=True, scope="module")
def compiler():
    if (sentence := missing()) and not tools_expected():
        pytest.skip(sentence)


@pytest.fixture(scope="module")
def session(compiler):
    with serving("--backend", "direct") as session:
        yield session


@pytest.fixture
def served():
    with local_daemon(backend_type=PolledBackend) as (daemon, messages):
        yield daemon, messages


def program_of(text):
    """Return the program with this name and these options in brief."""
    name, *options = text.split()
    return next(p for p in TABLE if p.name == name and set(options) <= set(p.options)
                and (options or not {"-c", "-e", "-q", "-R"} & set(p.options))).briefly()


@pytest.mark.parametrize("text", CHOSEN, ids=[text.replace(" ", "") for text in CHOSEN])
def test_an_unmodified_program_runs(session, text):
    program = program_of(text)
    if not program.there and not tools_expected():
        pytest.skip(f"{program.name} is missing; on Debian: apt-get install {' '.join(missing_packages([program]))}")
    status, _, output = one(session, program, PORT + CHOSEN.index(text), limit_s=60)
    assert status == PASSED, output


def test_protocols_of_ucx_run(session):
    program = next(p for p in TABLE if p.variables == ("UCX_TLS=rc_verbs,ud_verbs",)).briefly()
    if not program.there and not tools_expected():
        pytest.skip(f"{program.name} is missing; on Debian: apt-get install {' '.join(missing_packages([program]))}")
    status, figure, output = one(session, program, PORT + 80, limit_s=60)
    assert status == PASSED and figure > 0, output


def test_idle_programs_take_no_processor(session):
    program = session.start("a", "ibv_rc_pingpong", "-g", "0", "-p", str(PORT + 90))      # waits for its client
    time.sleep(IDLE_S)
    before = processor_ns(session.process.pid)
    time.sleep(IDLE_S)
    used = processor_ns(session.process.pid) - before
    program.kill()
    program.communicate()
    assert used <= CORE * IDLE_S * 1e9


@pytest.mark.parametrize("kind", [oracle, datagram_oracle], ids=["rc", "ud"])
def test_random_programs_see_the_same_on_functional_cards(kind):
    """Rounds go on until requests succeeded, were flushed, and failed otherwise."""
    first, seen = drawn_seed(), set()
    for seed in range(first, first + ROUNDS_MAX):
        print("again:", kind.COMMAND.format(count=REQUESTS, seed=seed))
        statuses, executed, differences = oracle.check(REQUESTS, seed, kind.some_program)
        assert not differences, differences
        assert executed >= REQUESTS
        seen |= set(statuses)
        if {"SUCCESS", "WR_FLUSH_ERR"} < seen:
            break
    else:
        raise AssertionError(f"only {seen} in {ROUNDS_MAX} rounds")


def test_the_oracle_notices_a_difference(monkeypatch):
    """A completion of another length on one back end only."""
    real, calls = oracle.play, []

    def play(*arguments):
        outcome = real(*arguments)
        calls.append(outcome)
        if len(calls) == 1:
            (found, _), *_ = outcome
            found[0][0].append("another completion")
        return outcome

    monkeypatch.setattr(oracle, "play", play)
    *_, differences = oracle.check(10, 1)
    assert differences[1].startswith("round 0")


@pytest.mark.parametrize(("name", "value"), [
    ("loss", 0.1), ("delay_us", 2.0), ("capture", "there"), ("link", "udp:localhost:4000"), ("time", "sim")])
def test_settings_that_need_packets_are_refused(name, value):
    with pytest.raises(BadSetting, match="needs packets"):
        Settings(backend="direct", **{name: value})
    assert Settings(**{name: value}).cards == "functional"


def test_a_deregistered_region_is_not_accessed(served):
    daemon, messages = served
    a, b = pair(daemon)
    works(a, b)
    before = bytes(b.mapping)
    b.call(Opcode.DESTROY, kind=3, handle=b.keys.handle)
    a.mapping[:PAGE] = bytes(PAGE)
    a.write(b)
    assert a.completion().status == WCStatus.REM_ACCESS_ERR
    assert bytes(b.mapping) == before and not messages


@pytest.mark.parametrize("how", ["ERR", "RESET", "destroyed", "ended"])
def test_a_request_waits_for_its_receive_and_fails_with_its_peer(served, how):
    """It waits for the receive without limit, while the thread sleeps."""
    daemon, _ = served
    a, b = pair(daemon)
    a.write(b, opcode=WROpcode.SEND)
    for _ in range(5):
        daemon.turn()
    assert not a.completions.take()
    if how == "destroyed":
        b.call(Opcode.DESTROY, kind=Kind.QP, handle=b.qp.handle)
    elif how == "ended":
        b.close()
    else:
        b.call(Opcode.MODIFY_QP, handle=b.qp.handle, mask=QPAttrMask.STATE, qp_state=QPState[how])
    assert a.completion().status == WCStatus.RETRY_EXC_ERR
    for end in (a, b):
        end.close()
    settle(daemon, 0)
    clean(daemon.backend)


def test_a_request_that_waits_for_a_receive_notices_that_its_peer_fails_by_itself(served):
    """The thread looks at the waiting request first, in the round in which the peer's own request fails."""
    daemon, _ = served
    a, b = RawEnd(daemon, "a"), RawEnd(daemon, "b")
    a.connect(b, min_rnr_timer=20)      # 10 ms
    b.connect(a, rnr_retry=3)
    a.write(b, opcode=WROpcode.SEND)
    b.write(a, opcode=WROpcode.SEND)
    assert b.completion().status == WCStatus.RNR_RETRY_EXC_ERR
    assert a.completion().status == WCStatus.RETRY_EXC_ERR


def test_registrations_leave_the_thread_asleep():
    """No request waits for them; a wake-up for each took as long as all else."""
    before = set(os.listdir("/proc/self/task"))
    with local_daemon(backend_type=PolledBackend) as (daemon, _):
        python = {str(thread.native_id) for thread in threading.enumerate()}
        (thread,) = set(os.listdir("/proc/self/task")) - before - python
        a, b = pair(daemon)
        slept = _sleeps(thread)
        for _ in range(REGIONS):
            keys = a.register(a.shared, address_of(a.mapping), PAGE, a.pd)
            a.call(Opcode.DESTROY, kind=Kind.MR, handle=keys.handle)
        assert _sleeps(thread) - slept < REGIONS / 10
        works(a, b)


def _sleeps(thread):
    """Return how often a thread of this process went to sleep."""
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[1])


def test_receive_requests_wake_the_thread_only_where_they_are_of_use(served):
    """A message waits for one, or the QP is in ERR and flushes it; others stay in their ring until a message comes."""
    daemon, _ = served
    a, b = pair(daemon)
    works(a, b)
    bells, every = [client.bell for client in daemon.clients.values()], Doorbell.SENDS | Doorbell.RECEIVES

    def sleeps(*posts):
        limit = time.monotonic() + END_S
        while [bell[ASLEEP] for bell in bells] != list(posts):
            assert time.monotonic() < limit, [bell[ASLEEP] for bell in bells]
            time.sleep(0.001)

    def receive():
        b.receives.fill(RECV_SLOT.pack(wr_id=5, num_sge=1) + SGE_SLOT.pack(addr=VA, length=PAGE, lkey=b.keys.lkey))
        b.ring_bell()
        return b.completion().status

    sleeps(Doorbell.SENDS, Doorbell.SENDS)
    a.write(b, opcode=WROpcode.SEND)
    sleeps(every, every)
    assert receive() == WCStatus.SUCCESS == a.completion().status
    sleeps(Doorbell.SENDS, Doorbell.SENDS)
    b.call(Opcode.MODIFY_QP, handle=b.qp.handle, mask=QPAttrMask.STATE, qp_state=QPState.ERR)
    sleeps(Doorbell.SENDS, every)
    assert receive() == WCStatus.WR_FLUSH_ERR


def test_a_registration_takes_few_calls_of_functions(served, monkeypatch):
    """Its time is that of the daemon's Python; the number of calls is the same on each machine."""
    daemon, _ = served
    (a, _), called, serve = pair(daemon), [], daemon._serve

    def counted(client):
        sys.setprofile(lambda _frame, event, _function: event.endswith("call") and called.append(event))
        serve(client)
        sys.setprofile(None)

    keys = [a.register(a.shared, address_of(a.mapping), PAGE, a.pd) for _ in range(HELD)]
    monkeypatch.setattr(daemon, "_serve", counted)
    further = a.register(a.shared, address_of(a.mapping), PAGE, a.pd)
    registered, called[:] = len(called), []
    for each in (further, *keys):
        a.call(Opcode.DESTROY, kind=Kind.MR, handle=each.handle)
    assert 0 < registered <= CALLS_REG
    assert 0 < len(called) / (1 + HELD) <= CALLS_DEREG


def test_notices_without_end_do_not_stop_the_daemon(served, monkeypatch):
    """A program causes one with each completion for which it has no space in its completion channel."""
    daemon, _ = served
    pages, turns = [1, 1, 1], 2
    with monkeypatch.context() as patch:
        patch.setitem(daemon.backend.engine._functions, "notices", lambda _fabric, _to, most: most * pages.pop())
        os.eventfd_write(daemon.backend.engine.notices, 1)
        for _ in range(turns):
            daemon.turn()
    assert len(pages) == 1
    works(*pair(daemon))


def test_queues_keep_their_contents_in_another_ring(served):
    daemon, _ = served
    a, b = pair(daemon)
    for n in range(5):
        a.write(b, wr_id=n, length=8)
    until(daemon, (), lambda: a.completions.word("prod") == 5)
    made, (file,) = a.call(Opcode.RESIZE_CQ, handle=a.cq, cqe=200)
    a.completions = Ring(file, made.slots, WC_SLOT.size_bytes)
    a.write(b, wr_id=5)
    assert [wc.wr_id for wc in a.completed(6)] == list(range(6)) and made.slots == 256
    made, (file,) = a.call(Opcode.CREATE_SRQ, user=3, pd=a.pd, max_wr=4, max_sge=1)
    srq = Ring(file, made.slots, made.slot_bytes)
    for n in range(3):
        srq.fill(RECV_SLOT.pack(wr_id=n))
    more, (file,) = a.call(Opcode.MODIFY_SRQ, handle=made.handle, mask=SrqAttrMask.MAX_WR, max_wr=9)
    larger = Ring(file, more.slots, more.slot_bytes)
    assert larger.word("prod") == 3
    assert [larger.memory[larger.place(n)] for n in range(4)] == [0, 1, 2, 0]


def test_long_queues_are_flushed_in_order(served):
    daemon, messages = served
    end, count = RawEnd(daemon, "a", cqe=4 * FLUSHED), 2 * FLUSHED
    qp, files = end.call(Opcode.CREATE_QP, user=3, pd=end.pd, send_cq=end.cq, recv_cq=end.cq, qp_type=QPType.RC,
                         max_send_wr=count, max_recv_wr=count, max_send_sge=1, max_recv_sge=1)
    sends = Ring(files[0], qp.send_slots, qp.send_slot_bytes)
    receives = Ring(files[1], qp.recv_slots, qp.recv_slot_bytes)
    begin = QPAttrMask.PKEY_INDEX | QPAttrMask.PORT | QPAttrMask.ACCESS_FLAGS
    for state, mask in ((QPState.INIT, begin), (QPState.ERR, 0)):
        end.call(Opcode.MODIFY_QP, handle=qp.handle, mask=QPAttrMask.STATE | mask, qp_state=state, port_num=1)
    for n in range(count):
        sends.fill(SEND_SLOT.pack(wr_id=n, opcode=WROpcode.SEND))
        receives.fill(RECV_SLOT.pack(wr_id=count + n))
    end.ring_bell()
    found = end.completed(2 * count)
    assert {wc.status for wc in found} == {WCStatus.WR_FLUSH_ERR}
    # The engine may read the rings before the bell: the order between the two queues is open.
    of_sends, of_receives = ([wc.wr_id for wc in found if (wc.wr_id >= count) == later] for later in (False, True))
    assert of_sends == list(range(count)) and of_receives == list(range(count, 2 * count)) and not messages


def test_a_region_moves(served):
    """Reregistration keeps the keys."""
    daemon, _ = served
    a, b = pair(daemon)
    other, keys = b.memory(2, b.pd)
    with pytest.raises(Rejected):
        b.call(Opcode.REREG_MR, handle=keys.handle, flags=0)
    moved = b.call(Opcode.REREG_MR, handle=b.keys.handle, flags=4, access=1)[0]      # without remote rights
    assert (moved.lkey, moved.rkey) == (b.keys.lkey, b.keys.rkey)
    a.mapping[:PAGE] = b"x" * PAGE
    a.write(b)
    assert a.completion().status == WCStatus.REM_ACCESS_ERR
    assert VA and b.mapping[:PAGE] != b"x" * PAGE and other[:PAGE] == bytes(PAGE)


@pytest.mark.parametrize("iova", [VA, (1 << 64) - 2 * PAGE], ids=["inside", "end"])
def test_requests_whose_data_is_read_together_send_their_own_bytes(served, iova):
    """Also from a region that ends with the last address."""
    daemon, messages = served
    a, b = pair(daemon)
    a.mapping[:] = random.randbytes(2 * PAGE)
    keys = a.call(Opcode.REG_MR, pd=a.pd, access=1, memory=a.shared, address=address_of(a.mapping), iova=iova,
                  length=2 * PAGE)[0]
    places = (0, 2 * PAGE - 8, 8, PAGE - 8, PAGE, 2 * PAGE - 64)
    for n, place in enumerate(places):
        a.sends.fill(SEND_SLOT.pack(wr_id=n, opcode=WROpcode.RDMA_WRITE, flags=SendFlags.SIGNALED, num_sge=1,
                                    remote_addr=VA + 100 * n, rkey=b.keys.rkey)
                     + SGE_SLOT.pack(addr=iova + place, length=8, lkey=keys.lkey))
    a.ring_bell()
    assert {wc.status for wc in a.completed(len(places))} == {WCStatus.SUCCESS}
    for n, place in enumerate(places):
        assert b.mapping[100 * n : 100 * n + 8] == a.mapping[place : place + 8]
    assert not messages


# ------------------------------------------------------------------------------------------------------- datagrams

def datagram_ends(daemon, hosts, groups=()):
    """Return programs with a UD QP each, which receive a datagram of up to a page."""
    ends = [datagram_oracle.End(daemon, host, shared=False) for host in hosts]
    for end in ends:
        end.names = {other.qp.qp_num: n for n, other in enumerate(ends)}
        end.begin(QKEYS[0], groups)
        end.post_as_many([[Sge(RECEIVED, PAGE + GRH_BYTES)]])
    daemon.turn()
    return ends


def datagram(to, *, sges=(), data=b"", qkey=QKEYS[0]):
    """Return a signaled send request with these entries, or with inline data."""
    flags = SendFlags.SIGNALED if sges else SendFlags.SIGNALED | SendFlags.INLINE
    return Datagram(1, WROpcode.SEND, int(flags), list(sges), to, qkey, inline=data)


def arrived(daemon, sender, others):
    """Wait for the send completion, and for the datagrams before a marker; return the completions of each program."""
    until(daemon, [sender], lambda: any(wc[0] == 1 for wc in sender.found))
    for other in others:
        other.expect_marker()
        daemon.turn()
        sender.send_marker(other)
        until(daemon, [sender, *others], lambda other=other: bool(other.markers.take()))
    found = []
    for end in (sender, *others):
        end.look()
        found.append([wc for wc in end.found if wc[0] != 1])
        end.found = []
    return found


def test_every_member_of_a_group_gets_a_copy(served):
    daemon, _ = served
    ends = datagram_ends(daemon, "aabb", GROUPS[:1])
    sender, *others = ends
    sender.post_sends([datagram(TO_GROUP, data=b"to all")], others[0])
    for end, found in zip(ends, arrived(daemon, sender, others), strict=True):
        assert [(wc[1], wc[3], wc[8]) for wc in found] == [(WCStatus.SUCCESS, GRH_BYTES + 6, 0)]
        at = RECEIVED + GRH_BYTES
        assert end.mapping[at : at + 6] == b"to all"
        end.post_as_many([[Sge(RECEIVED, PAGE)]])
    gid = gid_of(GROUPS[0])
    others[0].call(Opcode.DETACH_MCAST, handle=others[0].qp.handle, gid=gid)
    others[1].call(Opcode.DESTROY, kind=Kind.QP, handle=others[1].qp.handle)
    with pytest.raises(Rejected):
        others[0].call(Opcode.DETACH_MCAST, handle=others[0].qp.handle, gid=gid)
    sender.post_sends([datagram(TO_GROUP, data=b"again!")], others[0])
    own, detached, destroyed, other = arrived(daemon, sender, others)
    assert len(own) == len(other) == 1 and not detached and not destroyed


@pytest.mark.parametrize("backend", [PolledBackend, FunctionalBackend])
def test_a_datagram_to_itself_that_cannot_be_received_fails_its_qp_alone(backend):
    with local_daemon(backend_type=backend) as (daemon, messages):
        sender, other = datagram_ends(daemon, "ab")
        sender.reset(shared=False)
        sender.begin(QKEYS[0], ())
        sender.post_as_many([[Sge(RECEIVED, PAGE + GRH_BYTES, "foreign")]])
        daemon.turn()
        sender.post_sends([datagram(TO_SELF, data=b"x")] * 2, other)
        until(daemon, [sender], lambda: len(sender.found) == 3)
        assert {wc[1] for wc in sender.found} == {WCStatus.LOC_PROT_ERR, WCStatus.WR_FLUSH_ERR}
        assert (sender.query(), other.query()) == (QPState.ERR, QPState.RTS) and not messages


@pytest.mark.parametrize("backend", [PolledBackend, FunctionalBackend])
def test_a_group_gets_a_datagram_whose_sender_cannot_receive_it(backend):
    """The QP that sends fails as a member, before the copies of the others; its next requests are flushed."""
    with local_daemon(backend_type=backend) as (daemon, messages):
        ends = datagram_ends(daemon, "abb", GROUPS[:1])
        sender, *others = ends
        sender.reset(shared=False)
        sender.begin(QKEYS[0], GROUPS[:1])
        others[0].call(Opcode.DETACH_MCAST, handle=others[0].qp.handle, gid=gid_of(GROUPS[0]))
        others[0].call(Opcode.ATTACH_MCAST, handle=others[0].qp.handle, gid=gid_of(GROUPS[0]))      # after the sender
        sender.post_as_many([[Sge(RECEIVED, PAGE + GRH_BYTES, "foreign")]])
        daemon.turn()
        flags = int(SendFlags.SIGNALED | SendFlags.SOLICITED | SendFlags.INLINE)
        first = Datagram(1, WROpcode.SEND_WITH_IMM, flags, [], TO_GROUP, QKEYS[0], 0x1234_5678, b"to all")
        sender.post_sends([first, *[datagram(TO_PEER, data=b"flushed")] * 3], others[0])
        until(daemon, ends, lambda: all(end.found for end in others) and len(sender.found) == 5)
        for end in others:
            (wc,) = end.found
            assert wc[1:6] == (WCStatus.SUCCESS, 128, GRH_BYTES + 6, 0x1234_5678, 3) and not end.found[1:]
            assert end.mapping[RECEIVED + GRH_BYTES :][:6] == b"to all"
        assert sender.query() == QPState.ERR and not messages


@pytest.mark.parametrize("backend", [PolledBackend, FunctionalBackend])
@pytest.mark.parametrize("sge", [Sge(0, (1 << 32) - 1), Sge((1 << 64) - VA - 8, 16)], ids=["sum", "end"])
def test_no_sum_of_lengths_ends_a_program_with_datagrams(backend, sge):
    with local_daemon(backend_type=backend) as (daemon, messages):
        sender, other = datagram_ends(daemon, "ab")
        sender.post_sends([datagram(TO_PEER, sges=[sge] * SGES)], other)
        until(daemon, [sender], lambda: bool(sender.found))
        assert [wc[1] for wc in sender.found] == [WCStatus.LOC_LEN_ERR] and not messages
        assert sender.query() == QPState.SQE
        sender.modify(QPState.RTS)
        sender.post_sends([datagram(TO_PEER, data=b"works")], other)
        _, (found,) = arrived(daemon, sender, [other])
        assert found[3] == GRH_BYTES + 5


@pytest.mark.parametrize("fields", [
    {"opcode": WROpcode.RDMA_WRITE}, {"opcode": WROpcode.RDMA_READ}, {"opcode": 200}, {"num_sge": SGES + 1},
    {"inline_length": 1 << 16}], ids=str)
def test_a_slot_that_no_library_writes_ends_its_program(served, fields):
    daemon, _ = served
    bad, good, other = datagram_ends(daemon, "aab")
    bad.sends.fill(SEND_SLOT.pack(**{"opcode": WROpcode.SEND, "flags": SendFlags.SIGNALED} | fields))
    bad.ring_bell()
    with pytest.raises(Disconnected):
        bad.receive()
    good.post_sends([datagram(TO_PEER, data=b"works")], other)
    assert len(arrived(daemon, good, [other])[1]) == 1


def test_random_rings_of_datagrams_end_their_program_alone(served):
    daemon, messages = served
    rng, dropped = random.Random(seed := drawn_seed()), 0
    print("seed", seed)
    good, other = datagram_ends(daemon, "ab")
    for _ in range(40):
        (bad,) = datagram_ends(daemon, "a", GROUPS[:1])
        try:
            for _ in range(5):
                for ring in (bad.sends, bad.receives, bad.completions):
                    at = rng.choice((0, *[ring.place(0)] * 5))       # mostly the slots alone
                    ring.memory[at:] = bytes(byte if rng.random() < 0.98 else rng.randrange(256)
                                             for byte in ring.memory[at:])
                bad.post_sends([datagram(TO_GROUP, data=rng.randbytes(8)), datagram(TO_SELF, data=b"y")], other)
                daemon.turn()
                bad.query()
        except (Disconnected, Rejected):
            dropped += 1
        bad.close()
    assert dropped
    settle(daemon, 2)
    good.post_sends([datagram(TO_PEER, data=b"works")], other)
    assert len(arrived(daemon, good, [other])[1]) == 1
    assert not [sentence for sentence in messages if "unexpected" in sentence]
    for end in (good, other):
        end.close()
    settle(daemon, 0)
    clean(daemon.backend)
