"""Datagrams of served programs: unmodified programs without loss, and programs that break the rules."""

import errno
import os
import random

import pytest

from weft.driver.cm.card_agent import CardAgent
from weft.driver.cm.enums import UDP_QKEY, EventType, PortSpace
from weft.driver.connection.resolution import SidrStatus
from weft.driver.datagram.packet import MULTICAST_QPN
from weft.driver.datagram.service import DatagramService
from weft.driver.ibverbs.messages import MESSAGES, Kind, Opcode
from weft.driver.ibverbs.rings import RECV_SLOT, SEND_SLOT, SGE_SLOT
from weft.driver.serve.ports import Ports
from weft.driver.serve.ring import Violation
from weft.driver.terms.enums import QPAttrMask, QPState, QPType, SendFlags, WCFlags, WCStatus, WROpcode
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.test.app.serve.raw_ids import IPS, QPN, RawIds, param
from weft.tb.verify.programs.hostile import clean, settle
from weft.tb.verify.programs.local import EagerBackend, local_daemon
from weft.tb.verify.programs.programs import PASSED, TABLE, missing_packages, one
from weft.tb.verify.programs.raw_client import PAGE, VA, RawEnd, Rejected
from weft.tb.verify.programs.session import serving

PORT, PORT_OF_IDS, GROUP, CALLS, TURNS_MAX = 23800, 4000, 0xEF07_0707, 400, 100_000
PROGRAMS = [program.briefly() for program in TABLE if not program.reliable]


@pytest.fixture(scope="module")
def session(library):
    with serving("--backend", "functional") as session:
        yield session


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: "".join((program.name, *program.options)))
def test_an_unmodified_program_runs(session, program):
    if not program.there and not tools_expected():
        pytest.skip(f"{program.name} is missing; on Debian: apt-get install {' '.join(missing_packages([program]))}")
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    port = PORT + 100 * worker + PROGRAMS.index(program)
    status, figure, output = one(session, program, port, limit_s=120)
    assert status == PASSED, output
    assert program.figure is None or figure > 0, output


class DatagramIds(RawIds):
    """Program with identifiers of the port space UDP."""

    def new(self, user=1, channel=None):
        return self.call(Opcode.CREATE_ID, channel=channel or self.channel, user=user, port_space=PortSpace.UDP,
                         qp_type=QPType.UD)[0].handle


@pytest.fixture
def served():
    with local_daemon(loss=0.02) as (daemon, messages):
        yield daemon
        assert not messages


def empty(daemon):
    """Check that no state of datagrams is left."""
    for context in daemon.backend.contexts:
        agent = CardAgent.of(context.card)
        assert not (agent.agent.resolutions.listeners or agent.users or Ports.of(agent, "UDP").bound)
        service = DatagramService.of(context.engine)
        assert not (service.qps or service.groups or service.active)


class DatagramEnd(RawEnd):
    """Program with a UD queue pair in RTS."""

    qp_type = QPType.UD

    def __init__(self, daemon, host):
        super().__init__(daemon, host)
        for goal, mask in ((QPState.INIT, QPAttrMask.PKEY_INDEX | QPAttrMask.PORT | QPAttrMask.QKEY),
                           (QPState.RTR, 0), (QPState.RTS, QPAttrMask.SQ_PSN)):
            self.call(Opcode.MODIFY_QP, handle=self.qp.handle, mask=QPAttrMask.STATE | mask, qp_state=goal, port_num=1,
                      qkey=UDP_QKEY)

    def receive_into(self, at, length, wr_id=1):
        self.receives.fill(RECV_SLOT.pack(wr_id=wr_id, num_sge=1)
                           + SGE_SLOT.pack(addr=VA + at, length=length, lkey=self.keys.lkey))
        self.ring_bell()

    def datagram(self, address, number, *, opcode=WROpcode.SEND, length=100, qkey=UDP_QKEY, at=VA):
        self.sends.fill(
            SEND_SLOT.pack(wr_id=2, opcode=opcode, flags=SendFlags.SIGNALED, num_sge=1, remote_addr=address,
                           compare_add=number, rkey=qkey, imm_data=7)
            + SGE_SLOT.pack(addr=at, length=length, lkey=self.keys.lkey))
        self.ring_bell()


def test_datagrams_through_the_rings():
    with local_daemon() as (daemon, messages):
        a, b = DatagramEnd(daemon, "a"), DatagramEnd(daemon, "b")
        b.receive_into(0, PAGE)
        a.mapping[:100] = bytes(range(100))
        a.datagram(IPS["b"] | 0x12345 << 32, b.qp.qp_num, opcode=WROpcode.SEND_WITH_IMM)
        sent, got = a.completion(), b.completion()
        assert (sent.wr_id, sent.status) == (2, WCStatus.SUCCESS)
        assert (got.byte_len, got.src_qp, got.imm_data) == (140, a.qp.qp_num, 7)
        assert got.wc_flags == WCFlags.GRH | WCFlags.WITH_IMM and b.mapping[40:140] == bytes(range(100))
        a.datagram(IPS["b"], b.qp.qp_num, length=5000)
        assert a.completion().status == WCStatus.LOC_LEN_ERR
        for end in (a, b):
            end.close()
        settle(daemon, 0)
        clean(daemon.backend)
        empty(daemon)
        assert not messages


@pytest.mark.parametrize("fields", [
    {"opcode": WROpcode.RDMA_WRITE}, {"opcode": WROpcode.RDMA_READ}, {"opcode": WROpcode.ATOMIC_FETCH_AND_ADD},
    {"address": (1 << 64) - 1}, {"number": (1 << 64) - 1}, {"number": 0}, {"address": 0}, {"length": (1 << 32) - 1},
    {"at": (1 << 64) - 1}], ids=str)
def test_no_slot_harms_another_program(fields):
    """An operation that datagrams do not have ends its program; any other number is a request that completes."""
    with local_daemon() as (daemon, messages):
        a, b, bad = DatagramEnd(daemon, "a"), DatagramEnd(daemon, "b"), DatagramEnd(daemon, "a")
        bad.datagram(**{"address": IPS["b"], "number": b.qp.qp_num} | fields)
        dropped = "opcode" in fields
        for _ in range(TURNS_MAX):
            daemon.turn()
            if len(daemon.clients) == 2 or bad.completions.word("prod"):
                break
        assert (len(daemon.clients) == 2) == dropped and bool(messages) == dropped
        for n in range(2):
            b.receive_into(PAGE, PAGE, wr_id=n)
        a.datagram(IPS["b"], b.qp.qp_num)
        assert a.completion().status == WCStatus.SUCCESS
        for end in (a, b, bad):
            end.close()
        settle(daemon, 0)
        clean(daemon.backend)
        empty(daemon)


@pytest.mark.parametrize("where", ["sent", "received", "flushed"])
def test_a_completion_that_cannot_be_reported_ends_one_program(monkeypatch, where):
    """For example because the program leaves too many events unread."""
    with local_daemon(backend_type=EagerBackend) as (daemon, messages):
        good, bad = (DatagramEnd(daemon, "a"), DatagramEnd(daemon, "b")), DatagramEnd(daemon, "a")
        (client,) = (client for client in daemon.clients.values() if bad.qp.qp_num in client.qps)
        bad.receive_into(0, PAGE)
        for _ in range(20):
            daemon.turn()
        monkeypatch.setattr(client, "retired", lambda wc: refuse())
        if where == "sent":
            bad.datagram(IPS["b"], good[1].qp.qp_num)
        elif where == "received":
            good[0].datagram(IPS["a"], bad.qp.qp_num)
        else:
            daemon.backend.contexts[0].reset()
        settle(daemon, 2)
        assert not daemon.contained and "left too much" in messages[0] and len(messages) == 1, messages
        if where != "flushed":
            for end, peer in (good, good[::-1]):
                peer.receive_into(0, PAGE)
                end.datagram(IPS["b" if peer is good[1] else "a"], peer.qp.qp_num)
                assert {wc.status for wc in end.completed(1)} == {WCStatus.SUCCESS}


def refuse():
    raise Violation("it left too much")


@pytest.mark.parametrize("same_host", [False, True])
def test_a_service_from_request_to_answer(served, same_host):
    server, client = DatagramIds(served, "b"), DatagramIds(served, "b" if same_host else "a")
    server.listen(PORT_OF_IDS, user=5)
    theirs = client.request(IPS["b"], PORT_OF_IDS, user=7, data=b"hello")
    asked = server.event(EventType.CONNECT_REQUEST)
    assert (asked.user, asked.ud, asked.private_data_len) == (5, 1, 180)
    assert asked.private_data.to_bytes(256, "little")[:5] == b"hello"
    attr = server.do(Opcode.INIT_QP_ATTR, asked.id, qp_state=QPState.INIT)
    assert attr.qkey == UDP_QKEY and attr.mask & QPAttrMask.QKEY
    server.do(Opcode.ACCEPT, asked.id, user=9, valid=1, **param(QPN + 1, b"you too", qkey=77))
    found = client.event(EventType.ESTABLISHED)
    assert (found.user, found.ud, found.qp_num, found.qkey, found.peer_ip) == (7, 1, QPN + 1, 77, IPS["b"])
    assert found.private_data.to_bytes(256, "little")[:7] == b"you too"
    assert client.do(Opcode.INIT_QP_ATTR, theirs, qp_state=QPState.INIT).qkey == 77
    for end, handle in ((server, asked.id), (client, theirs)):
        end.do(Opcode.DISCONNECT, handle)      # no effect
        end.do(Opcode.DESTROY_ID, handle)
    server.close(), client.close()
    settle(served, 0)
    empty(served)


def test_rejection_missing_service_and_both_port_spaces(served):
    server, client, other = DatagramIds(served, "b"), DatagramIds(served, "a"), RawIds(served, "b")
    client.request(IPS["b"], PORT_OF_IDS)
    assert client.event(EventType.UNREACHABLE).status == SidrStatus.UNSUPPORTED
    server.listen(PORT_OF_IDS)
    other.listen(PORT_OF_IDS)      # of TCP
    with pytest.raises(Rejected) as taken:
        server.do(Opcode.BIND_ADDR, server.new(), port=PORT_OF_IDS)
    assert taken.value.args[0] == errno.EADDRINUSE
    client.request(IPS["b"], PORT_OF_IDS)
    one = server.event(EventType.CONNECT_REQUEST).id
    server.do(Opcode.REJECT, one, reason=0, private_data_len=2, private_data=int.from_bytes(b"no", "little"))
    refused = client.event(EventType.UNREACHABLE)
    assert refused.status == SidrStatus.REJECTED and refused.private_data.to_bytes(256, "little")[:3] == b"no\0"
    with pytest.raises(Rejected):
        server.do(Opcode.ACCEPT, one, user=9, valid=1, **param())
    with pytest.raises(Rejected):
        client.call(Opcode.CREATE_ID, channel=client.channel, user=1, port_space=PortSpace.IPOIB, qp_type=QPType.UD)


def test_memberships_of_groups(served):
    member = DatagramIds(served, "a")
    one = member.new()
    with pytest.raises(Rejected):
        member.call(Opcode.JOIN_MULTICAST, handle=one, user=3, ip=GROUP)      # it has no device
    member.do(Opcode.RESOLVE_ADDR, one, dst_ip=GROUP, timeout_ms=2000)
    member.event(EventType.ADDR_RESOLVED)
    with pytest.raises(Rejected):
        member.call(Opcode.JOIN_MULTICAST, handle=one, user=3, ip=IPS["b"])
    group = member.call(Opcode.JOIN_MULTICAST, handle=one, user=3, ip=GROUP)[0].handle
    event = member.event(EventType.MULTICAST_JOIN)
    assert (event.user, event.id, event.qp_num, event.qkey, event.peer_ip) == (3, group, MULTICAST_QPN, UDP_QKEY, GROUP)
    left = member.do(Opcode.LEAVE_MULTICAST, group)
    assert (left.reported, left.dropped) == (1, 0)
    with pytest.raises(Rejected):
        member.do(Opcode.LEAVE_MULTICAST, group)
    other = member.make_channel()
    group = member.call(Opcode.JOIN_MULTICAST, handle=one, user=4, ip=GROUP)[0].handle
    assert member.do(Opcode.MIGRATE_ID, one, channel=other).moved == 1
    assert not member.do(Opcode.GET_CM_EVENT, member.channel).there
    assert member.event(EventType.MULTICAST_JOIN, other).user == 4
    member.do(Opcode.LEAVE_MULTICAST, group)
    for user in range(5):
        member.call(Opcode.JOIN_MULTICAST, handle=one, user=user, ip=GROUP)
    assert member.do(Opcode.DESTROY_ID, one).dropped == 5
    assert not any(client.objects[Kind.MULTICAST] for client in served.clients.values())


def test_random_calls_end_no_other_program(served):
    """Calls in any order with random numbers: each is answered or ends its program, and leaves nothing."""
    rng = random.Random(seed := drawn_seed())
    print(f"WEFT_SEED={seed}")
    opcodes = (*[Opcode.CREATE_ID] * 12, *range(Opcode.CREATE_ID, Opcode.INIT_QP_ATTR + 1),
               *range(Opcode.ATTACH_MCAST, Opcode.LEAVE_MULTICAST + 1))
    usual = {"handle": lambda: rng.randrange(12), "channel": lambda: 1, "user": lambda: rng.randrange(1, 9),
             "port_space": lambda: PortSpace.UDP, "qp_type": lambda: QPType.UD, "ip": lambda: rng.choice([0, GROUP]),
             "dst_ip": lambda: rng.choice([*IPS.values(), GROUP]), "port": lambda: rng.choice([0, PORT_OF_IDS]),
             "dst_port": lambda: PORT_OF_IDS, "private_data_len": lambda: rng.randrange(200), "qp_num": lambda: QPN,
             "timeout_ms": lambda: rng.randrange(9), "qp_state": lambda: rng.randrange(4)}
    programs = [DatagramIds(served, rng.choice("ab")) for _ in range(3)]
    answers = 0
    for _ in range(CALLS):
        opcode = Opcode(rng.choice(opcodes))
        fields = {name: usual[name]() if name in usual and rng.random() < 0.9 else rng.randrange(1 << min(width, 24))
                  for name, width in ((field.name, field.width) for field in MESSAGES[opcode][0].fields)
                  if not name.startswith("_")}
        try:
            _, files = rng.choice(programs).call(opcode, **fields)
            answers += 1
        except Rejected:
            continue
        for file in files:
            os.close(file)
    assert answers > CALLS // 20
    for program in programs:
        program.close()
    settle(served, 0)
    empty(served)
