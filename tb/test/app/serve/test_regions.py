"""Tests of the time at which the card gets a region of a program, and of the end of its use."""

import mmap

import pytest

from weft.driver.ibverbs.messages import Kind, Opcode
from weft.driver.ibverbs.rings import SEND_SLOT, SGE_SLOT
from weft.driver.terms.enums import AccessFlag, QPAttrMask, QPState, ReregFlag, SendFlags, WCStatus, WROpcode
from weft.hdl.contract import abi
from weft.tb.verify.programs.hostile import clean, pair, settle, works
from weft.tb.verify.programs.local import PolledBackend, local_daemon
from weft.tb.verify.programs.raw_client import PAGE, VA, Rejected, address_of

LOCAL, PEERS = AccessFlag.LOCAL_WRITE, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE
AT = VA + (1 << 20)


@pytest.fixture(params=[False, True], ids=["wall", "sim"])
def served(request):
    with local_daemon(simulated=request.param) as (daemon, messages):
        yield daemon, messages


def regions(daemon, host=0):
    """Return the regions of a host's card."""
    return daemon.backend.devices[host].card.tables.mrs


def region(end, access):
    """Register a page of new memory at address AT; return its mapping and its keys."""
    memory = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    keys = end.call(Opcode.REG_MR, pd=end.pd, access=access, memory=end.shared, address=address_of(memory), iova=AT,
                    length=PAGE)[0]
    return memory, keys


def write(end, lkey, remote, rkey):
    """Write a page from AT, and return the status of the completion."""
    end.sends.fill(SEND_SLOT.pack(wr_id=1, opcode=WROpcode.RDMA_WRITE, flags=SendFlags.SIGNALED, num_sge=1,
                                  remote_addr=remote, rkey=rkey) + SGE_SLOT.pack(addr=AT, length=PAGE, lkey=lkey))
    end.ring_bell()
    return end.completion().status


def destroy(end, keys):
    end.call(Opcode.DESTROY, kind=Kind.MR, handle=keys.handle)


def test_a_region_for_peers_is_there_before_their_next_request(served):
    daemon, messages = served
    a, b = pair(daemon)
    for n in range(20):
        source, own = region(a, PEERS if n % 2 else LOCAL)
        target, peers = region(b, PEERS)
        source[:] = bytes([n]) * PAGE
        assert write(a, own.lkey, AT, peers.rkey) == WCStatus.SUCCESS
        assert target[:] == source[:]
        destroy(a, own)
        destroy(b, peers)
        assert len(regions(daemon)) == len(regions(daemon, 1)) == 1
    assert not messages


def test_a_region_is_there_before_a_call_that_takes_requests():
    """The peer may have the key while the daemon still answers calls, before the turn in which it installs regions."""
    with local_daemon() as (daemon, messages):
        a, b = pair(daemon)
        daemon.turn()
        turn, daemon.turn = daemon.turn, lambda: daemon._calls(None)
        target, peers = region(b, PEERS)
        before = len(regions(daemon, 1))
        a.call(Opcode.MODIFY_QP, handle=a.qp.handle, mask=QPAttrMask.STATE, qp_state=QPState.SQD)
        assert (before, len(regions(daemon, 1))) == (1, 2)
        daemon.turn = turn
        assert target[:] == bytes(PAGE) and peers.rkey and not messages


def test_a_region_without_use_takes_no_command():
    with local_daemon() as (daemon, messages):
        a, b = pair(daemon)
        daemon.turn()
        before = dict(regions(daemon))
        for _ in range(100):
            _, keys = region(a, LOCAL)
            a.call(Opcode.REREG_MR, handle=keys.handle, flags=ReregFlag.CHANGE_ACCESS, access=PEERS)
            a.call(Opcode.REREG_MR, handle=keys.handle, flags=ReregFlag.CHANGE_ACCESS, access=LOCAL)
            destroy(a, keys)
        memory, keys = region(a, LOCAL)
        daemon.turn()
        assert regions(daemon) == before and len(before) == 1
        memory[:] = b"x" * PAGE
        assert write(a, keys.lkey, VA, b.keys.rkey) == WCStatus.SUCCESS and b.mapping[:PAGE] == memory[:]
        assert len(regions(daemon)) == 2
        destroy(a, keys)
        assert len(regions(daemon)) == 1 and not messages


def test_access_changes_before_the_first_use(served):
    daemon, _ = served
    a, b = pair(daemon)
    source, own = region(a, LOCAL)
    target, keys = region(b, LOCAL)
    b.call(Opcode.REREG_MR, handle=keys.handle, flags=ReregFlag.CHANGE_ACCESS, access=PEERS)
    source[:] = b"y" * PAGE
    assert write(a, own.lkey, AT, keys.rkey) == WCStatus.SUCCESS and target[:] == source[:]


@pytest.mark.parametrize(("backend", "length"), [(None, PAGE << 13), (PolledBackend, 8 << 30)],
                         ids=["functional", "direct"])
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_a_rejected_change_leaves_the_region_unchanged(backend, length, used):
    with local_daemon(backend_type=backend) as (daemon, messages):
        daemon.backend.rest_s = lambda: 0      # a turn without work does not sleep
        a, b = pair(daemon)
        memory, keys = region(a, LOCAL)
        if used:
            assert write(a, keys.lkey, VA, b.keys.rkey) == WCStatus.SUCCESS
        with pytest.raises(Rejected):
            a.call(Opcode.REREG_MR, handle=keys.handle, flags=ReregFlag.CHANGE_TRANSLATION, memory=a.shared,
                   address=AT, iova=AT + PAGE, length=length)
        a.call(Opcode.REREG_MR, handle=keys.handle, flags=ReregFlag.CHANGE_ACCESS, access=PEERS)
        memory[:] = b"k" * PAGE
        assert write(a, keys.lkey, VA, b.keys.rkey) == WCStatus.SUCCESS and b.mapping[:PAGE] == memory[:]
        assert not messages


@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_nothing_is_written_after_deregistration(served, used):
    daemon, messages = served
    (a, b), others = pair(daemon), pair(daemon)
    source, own = region(a, LOCAL)
    target, keys = region(b, PEERS)
    if used:
        assert write(a, own.lkey, AT, keys.rkey) == WCStatus.SUCCESS
    destroy(b, keys)
    source[:] = b"z" * PAGE
    assert write(a, own.lkey, AT, keys.rkey) == WCStatus.REM_ACCESS_ERR
    assert target[:] == bytes(PAGE)
    works(*others)
    for end in (a, b, *others):
        end.close()
    settle(daemon, 0)
    clean(daemon.backend)
    assert not messages


def test_a_key_of_another_program_is_no_key(served):
    daemon, _ = served
    (a, b), (other, _) = pair(daemon), pair(daemon)
    memory, keys = region(other, LOCAL)
    memory[:] = b"secret  " * (PAGE // 8)
    assert write(a, keys.lkey, VA, b.keys.rkey) == WCStatus.LOC_PROT_ERR
    assert b.mapping[:PAGE] == bytes(PAGE)


@pytest.mark.parametrize("access", [LOCAL, PEERS], ids=["local", "peers"])
def test_a_region_that_the_card_rejects_is_that_of_one_program(monkeypatch, access):
    with local_daemon() as (daemon, messages):
        (a, b), others = pair(daemon), pair(daemon)
        daemon.turn()
        with monkeypatch.context() as patch:
            patch.setattr(daemon.backend.devices[0].card.tables, "_mr_create", lambda *_: abi.CommandStatus.IN_USE)
            _, keys = region(a, access)
            if access == LOCAL:
                assert write(a, keys.lkey, VA, b.keys.rkey) == WCStatus.LOC_PROT_ERR
            else:
                settle(daemon, 3)
                assert "the card rejected its memory region" in messages[0]
        a.close()
        b.close()
        works(*others)
        works(*others[::-1])
        for end in others:
            end.close()
        settle(daemon, 0)
        clean(daemon.backend)


def test_regions_survive_a_reset_of_the_card(served):
    daemon, _ = served
    a, b = pair(daemon)
    source, own = region(a, LOCAL)
    daemon.backend.contexts[0].reset()
    (c, d) = pair(daemon)
    works(c, d)
    destroy(a, own)
    assert source[:] == bytes(PAGE) and b.mapping[:PAGE] == bytes(PAGE)
