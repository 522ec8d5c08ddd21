"""Tests of extreme numbers in rings and messages: they end at most the connection of the program that wrote them."""

import errno
import random

import pytest

from weft.driver.ibverbs.messages import MESSAGES, REQUEST, VERSION, Kind, Opcode
from weft.driver.ibverbs.rings import RECV_SLOT, SEND_SLOT, SGE_SLOT
from weft.driver.operation.mailbox import Mailbox
from weft.driver.operation.window import WindowTable
from weft.driver.serve import daemon as serve_daemon
from weft.driver.serve import work_queues
from weft.driver.serve.client import Client, EventPipe
from weft.driver.terms.enums import QPAttrMask, QPState, WCStatus, WROpcode
from weft.hdl.contract import abi
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.programs.hostile import clean, close_all, pair, settle, works
from weft.tb.verify.programs.local import PolledBackend, local_daemon
from weft.tb.verify.programs.raw_client import PAGE, SLOTS, VA, Disconnected, RawClient, RawEnd, Rejected

ENTRIES, MESSAGES_SENT, TURNS, EACH = 3_000, 3_000, 12, 50
EDGES = sorted({edge + step for bits in (0, 7, 8, 12, 16, 22, 24, 31, 32, 63, 64) for edge in (1 << bits,)
                for step in (-2, -1, 0, 1)} | {0, VA, VA + PAGE, VA + 2 * PAGE, VA + 2 * PAGE - 1})
OPCODES = [int(opcode) for opcode in WROpcode if opcode <= WROpcode.ATOMIC_FETCH_AND_ADD]
INLINE_BYTES, SGES_MAX = 64, 2      # of the QP of a RawEnd
EXPECTED = {WCStatus.SUCCESS, WCStatus.LOC_LEN_ERR, WCStatus.LOC_PROT_ERR, WCStatus.WR_FLUSH_ERR,
            WCStatus.REM_ACCESS_ERR}
LONGEST, WORD_MAX = 1 << 31, (1 << 32) - 1


@pytest.fixture(params=[None, PolledBackend], ids=["functional", "direct"])
def served(request):
    with local_daemon(backend_type=request.param) as (daemon, messages):
        daemon.backend.rest_s = lambda: 0     # a turn without work does not sleep
        yield daemon, messages


@pytest.fixture
def rng():
    seed = drawn_seed()
    print(f"seed {seed}")
    return random.Random(seed)


def edge(rng, bits=64):
    """Return a number of ``bits`` bits, near an edge."""
    return rng.choice(EDGES) % (1 << bits)


def sge(rng, end):
    """Return an SGE: valid, with one extreme number, or with only such."""
    fields = {"addr": VA, "length": rng.randrange(PAGE), "lkey": end.keys.lkey}
    for name in rng.choice([(), (), (), (), (), (), ("length",), ("length",), ("addr",), ("lkey",), tuple(fields)]):
        fields[name] = edge(rng, 64 if name == "addr" else 32)
    return SGE_SLOT.pack(**fields)


def send_entry(rng, end, peer):
    """Return a send request that the library could have written, with extreme numbers."""
    fields = {"wr_id": edge(rng), "remote_addr": VA, "rkey": peer.keys.rkey, "opcode": rng.choice(OPCODES),
              "flags": rng.randrange(32), "num_sge": rng.randrange(SGES_MAX + 1), "imm_data": edge(rng, 32),
              "compare_add": edge(rng), "swap": edge(rng), "inline_length": rng.choice([0, 1, INLINE_BYTES])}
    for name in rng.choice([(), (), (), ("remote_addr",), ("rkey",), ("remote_addr", "rkey")]):
        fields[name] = edge(rng, 64 if name == "remote_addr" else 32)
    return SEND_SLOT.pack(**fields) + b"".join(sge(rng, end) for _ in range(SGES_MAX))


def receive_entry(rng, end):
    """Return a receive request that the library could have written, with extreme numbers."""
    return RECV_SLOT.pack(wr_id=edge(rng), num_sge=rng.randrange(SGES_MAX + 1)) + b"".join(
        sge(rng, end) for _ in range(SGES_MAX))


def in_state(rng, daemon):
    """Return two programs, of which the first has a QP in any state that can hold requests."""
    ends = RawEnd(daemon, "a"), RawEnd(daemon, rng.choice("ab"))
    for end, peer in (ends, ends[::-1]):
        if rng.random() < 0.8:
            end.connect(peer)
            if rng.random() < 0.2:
                state = rng.choice([QPState.SQD, QPState.ERR, QPState.RESET])
                end.call(Opcode.MODIFY_QP, handle=end.qp.handle, mask=QPAttrMask.STATE, qp_state=state)
    return ends


def undisturbed(daemon, good, messages):
    """Check that the other programs work, and that the daemon met nothing unexpected."""
    works(*good)
    works(*good[::-1])
    assert not daemon.contained, messages


def test_extreme_numbers_in_rings(served, rng):
    daemon, messages = served
    good, statuses, n = pair(daemon), set(), 0
    while n < ENTRIES // EACH or not EXPECTED <= statuses:
        n += 1
        assert n < 20 * ENTRIES // EACH, statuses
        ends = in_state(rng, daemon)
        for _ in range(EACH // 4):
            for end, peer in (ends, ends[::-1]):
                if end.sends.word("prod") - end.sends.word("done") < SLOTS:
                    end.sends.fill(send_entry(rng, end, peer))
                if end.receives.word("prod") - end.receives.word("done") < SLOTS:
                    end.receives.fill(receive_entry(rng, end))
                end.ring_bell()
            for _ in range(rng.randrange(TURNS)):
                daemon.turn()
            statuses |= {wc.status for end in ends for wc in end.completions.take()}
        if n % 4 == 0:
            undisturbed(daemon, good, messages)
        for end in ends:
            end.close()
        settle(daemon, 2)
    undisturbed(daemon, good, messages)
    assert not messages
    for end in good:
        end.close()
    settle(daemon, 0)
    clean(daemon.backend)


@pytest.mark.parametrize("version", [0, VERSION - 1, VERSION + 1, (1 << 16) - 1])
def test_a_program_of_another_version_is_refused(served, version):
    """The refusal leaves the connection, which a library closes, and names both versions."""
    daemon, messages = served
    end = RawClient(daemon, "a")
    for opcode in (Opcode.HELLO, Opcode.QUERY_DEVICE):
        end.send_message(REQUEST.pack(version=version, opcode=opcode) + MESSAGES[opcode][0].pack())
        head, sentence, _ = end.receive()
        assert head.status == errno.EPROTO
        assert f"version {version} of" in sentence.decode() and f"version {VERSION}:" in sentence.decode()
    end.close()
    settle(daemon, 0)
    assert not messages


def test_extreme_numbers_in_messages(served, rng):
    daemon, messages = served
    good, end, found = pair(daemon), RawEnd(daemon, "a"), {True: 0, False: 0}
    for _ in range(MESSAGES_SENT):
        opcode = rng.choice([opcode for opcode in Opcode if opcode is not Opcode.HELLO])
        asked, _ = MESSAGES[opcode]
        handles = [end.pd, end.cq, end.qp.handle, *range(8)]
        fields = {field.name: rng.choice([edge(rng, field.width), rng.choice(handles) % (1 << field.width)])
                  for field in asked.fields if not field.name.startswith("_")}
        if opcode is Opcode.DESTROY:
            fields["kind"] = int(rng.choice(list(Kind)))
        try:
            end.send_message(REQUEST.pack(version=VERSION, opcode=opcode) + asked.pack(**fields))
            head, _, files = end.receive()
            close_all(files)
            found[head.status == 0] += 1
        except Disconnected:
            end = RawEnd(daemon, "a")
        if rng.random() < 0.01:
            undisturbed(daemon, good, messages)
    undisturbed(daemon, good, messages)
    assert all(found.values())


@pytest.mark.parametrize("lengths", [(LONGEST, LONGEST), (LONGEST, 1), (WORD_MAX, WORD_MAX), (LONGEST + 1, 0)], ids=str)
@pytest.mark.parametrize("opcode", OPCODES[:5])
def test_sums_of_lengths_beyond_the_longest_message(served, opcode, lengths):
    daemon, messages = served
    good = pair(daemon)
    bad, peer = pair(daemon)
    bad.sends.fill(SEND_SLOT.pack(wr_id=5, opcode=opcode, flags=2, num_sge=2, remote_addr=VA, rkey=peer.keys.rkey)
                   + b"".join(SGE_SLOT.pack(addr=VA, length=length, lkey=bad.keys.lkey) for length in lengths))
    bad.ring_bell()
    wc = bad.completion()
    assert (wc.wr_id, wc.status) == (5, WCStatus.LOC_LEN_ERR)
    undisturbed(daemon, good, messages)


@pytest.mark.parametrize("ring", ["sends", "receives"])
def test_a_program_cannot_have_more_requests_than_slots(served, ring):
    """Each round fills all slots, although none of the requests that were taken is done."""
    daemon, messages = served
    good = pair(daemon)
    bad, peer = pair(daemon)
    if ring == "sends":
        bad.call(Opcode.MODIFY_QP, handle=bad.qp.handle, mask=QPAttrMask.STATE, qp_state=QPState.SQD)
    entry = SEND_SLOT.pack(rkey=peer.keys.rkey, opcode=WROpcode.RDMA_WRITE) if ring == "sends" else RECV_SLOT.pack()
    for _ in range(3):
        for _ in range(getattr(bad, ring).slots):
            getattr(bad, ring).fill(entry)
        bad.ring_bell()
        daemon.turn()
    settle(daemon, 3)
    (sentence,) = messages
    assert "a ring of 16 slots has" in sentence
    undisturbed(daemon, good, messages)


def test_a_read_that_the_qp_may_not_have_fails(served):
    """The library refuses it when it is posted; a program without the library gets an error."""
    daemon, messages = served
    good = pair(daemon)
    bad, peer = pair(daemon)
    for state, mask in ((QPState.SQD, 0), (None, QPAttrMask.MAX_QP_RD_ATOMIC), (QPState.RTS, 0)):
        bad.call(Opcode.MODIFY_QP, handle=bad.qp.handle, mask=mask or QPAttrMask.STATE, qp_state=state or 0,
                 max_rd_atomic=0)
    bad.write(peer, opcode=WROpcode.RDMA_READ)
    assert bad.completion().status == WCStatus.LOC_QP_OP_ERR
    undisturbed(daemon, good, messages)


def raising(*_args, **_options):
    raise ZeroDivisionError("a fault of the daemon")


def client_of(end):
    """Return the daemon's object for a program."""
    (client,) = (client for client in end.daemon.clients.values() if end.qp.qp_num in client.qps)
    return client


def afterwards(method):
    """Return a method that does its work, and then raises an exception."""
    return lambda *arguments: method(*arguments) or raising()


# Where an exception is injected, for the QP of one program or for what only this program does.
PLACES = {
    "entry": lambda patch, engine: patch.setattr(work_queues, "operation_of", raising),
    "completion": lambda patch, engine: patch.setattr(Client, "retired", raising),
    "round": lambda patch, engine: patch.setattr(engine, "progress", raising),
    "descriptors": lambda patch, engine: patch.setattr(engine, "descriptors", raising),
    "transmitted": lambda patch, engine: patch.setattr(engine.sender, "on_transmitted", raising),
    "control frame": lambda patch, engine: patch.setattr(engine, "_on_control", raising),
    "report": lambda patch, engine: patch.setattr(engine, "_on_report", raising),
    "mailbox pages": lambda patch, engine: patch.setattr(Mailbox, "_answered", staticmethod(raising)),
    "mailbox": lambda patch, engine: patch.setattr(Mailbox, "_opened", afterwards(Mailbox._opened)),
    "mailbox closed": lambda patch, engine: patch.setattr(Mailbox, "_closed", afterwards(Mailbox._closed)),
    "window": lambda patch, engine: patch.setattr(WindowTable, "_answered", staticmethod(raising)),
    "window closed": lambda patch, engine: patch.setattr(WindowTable, "_gone", afterwards(WindowTable._gone)),
    "call": lambda patch, engine: patch.setitem(serve_daemon.CALLS, Opcode.QUERY_DEVICE, raising),
    "end": lambda patch, engine: patch.setattr(EventPipe, "close", afterwards(EventPipe.close)),
}


def act(where, bad, peer):
    """Do what leads to the exception."""
    if where == "call":
        with pytest.raises(Disconnected):
            bad.call(Opcode.QUERY_DEVICE)
    elif where == "end":
        bad.close()
    elif where == "report":
        peer.write(bad)
    elif where == "mailbox closed":
        bad.write(peer, opcode=WROpcode.RDMA_READ)
        assert bad.completion().status is not None
        bad.call(Opcode.DESTROY, kind=Kind.QP, handle=bad.qp.handle)
    else:
        bad.write(peer, opcode=WROpcode.RDMA_READ if where.startswith(("mailbox", "window")) else WROpcode.RDMA_WRITE)


@pytest.mark.parametrize("simulated", [False, True], ids=["wall", "sim"])
@pytest.mark.parametrize("where", PLACES)
def test_an_unexpected_exception_ends_one_connection(monkeypatch, where, simulated):
    with local_daemon(simulated=simulated) as (daemon, messages):
        good, (bad, peer) = pair(daemon), pair(daemon)
        with monkeypatch.context() as patch:
            client = client_of(bad)
            PLACES[where](patch, client.qps[bad.qp.qp_num].engine)
            act(where, bad, peer)
            for _ in range(10_000):
                if messages:
                    break
                daemon.turn()
        assert daemon.contained == 1 and "ZeroDivisionError" in messages[0], messages
        assert len(daemon.clients) == 3 and client not in daemon.clients.values()
        if where != "end":
            with pytest.raises((Disconnected, Rejected)):
                bad.call(Opcode.ALLOC_PD)
        works(*good)
        works(*good[::-1])


def test_an_unexpected_exception_in_a_report_to_a_program_ends_its_connection(monkeypatch):
    with local_daemon() as (daemon, messages):
        good, (bad, peer) = pair(daemon), pair(daemon)
        monkeypatch.setattr(client_of(bad), "notify", raising)
        bad.write(peer)
        settle(daemon, 3)
        assert daemon.contained == 1 and "ZeroDivisionError" in messages[0], messages
        works(*good)


@pytest.mark.parametrize("served", [None], indirect=True, ids=["functional"])
@pytest.mark.parametrize("opcode", [WROpcode.RDMA_READ, WROpcode.SEND])
def test_a_region_that_the_card_refuses_ends_one_connection(served, monkeypatch, opcode):
    daemon, messages = served
    good, (bad, peer) = pair(daemon), pair(daemon)
    with monkeypatch.context() as patch:
        patch.setattr(daemon.backend.devices[0].card.tables, "_mr_create", lambda *_: abi.CommandStatus.IN_USE)
        bad.write(peer, opcode=opcode)
        settle(daemon, 3)
    assert daemon.contained == 1 and "the card refused" in messages[0], messages
    works(*good)


@pytest.mark.parametrize("simulated", [False, True], ids=["wall", "sim"])
@pytest.mark.parametrize("part", ["service", "balance", "frame"])
def test_an_exception_that_belongs_to_no_program_fails_one_card(part, simulated):
    with local_daemon("abc", simulated=simulated) as (daemon, messages):
        lost, kept = RawEnd(daemon, "a"), (RawEnd(daemon, "b"), RawEnd(daemon, "c"))
        for end, peer in (kept, kept[::-1]):
            end.connect(peer)
        lost.connect(kept[0])
        context, other, _ = daemon.backend.contexts
        if part == "service":
            context.engine.services[0].progress = raising
        elif part == "balance":
            context.engine.balancers.append(raising)
        else:
            context.raw_frame_handlers.append(raising)
            other.send_raw(context.mac.to_bytes(6, "big") + bytes(60))
        lost.write(kept[0])
        for _ in range(10_000):
            if messages:
                break
            daemon.turn()
        assert daemon.contained == 1 and "card of" in messages[0] and "ZeroDivisionError" in messages[0], messages
        assert lost.completion().status in (WCStatus.FATAL_ERR, WCStatus.WR_FLUSH_ERR)
        works(*kept)
        works(*kept[::-1])
