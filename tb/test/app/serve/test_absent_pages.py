"""Tests of accesses to pages that a program removed while they were registered, and to memory of a program that ended.

Nothing that the program did not write reaches a peer; the daemon and the other programs continue.
"""

import contextlib
import faulthandler
import mmap
import os
import signal

import pytest

from weft.driver.ibverbs.messages import Kind, Opcode
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.tb.app.serve.simulated import ModelBackend, WallClockModelBackend
from weft.tb.verify.programs.hostile import pair, settle, works
from weft.tb.verify.programs.local import EagerBackend, local_daemon
from weft.tb.verify.programs.raw_client import PAGE, RawEnd, address_of, remove

TURNS = 20
BACKENDS = [{}, {"simulated": True}, {"simulated": True, "backend_type": ModelBackend},
            {"backend_type": WallClockModelBackend}]
BACK_ENDS = pytest.mark.parametrize("options", BACKENDS, ids=["wall", "simulated", "model", "wall model"])


@contextlib.contextmanager
def ends(options):
    """Yield two pairs of connected programs; the second pair must work at the end, and nothing may be left."""
    with local_daemon(**options) as (daemon, messages):
        pairs = pair(daemon), pair(daemon)
        yield pairs[0]
        for one in pairs[0]:
            one.close()
        settle(daemon, 2)
        works(*pairs[1])
        works(*pairs[1][::-1])
        for one in pairs[1]:
            one.close()
        settle(daemon, 0)
        assert not messages


@BACK_ENDS
def test_a_write_from_absent_pages_fails_and_leaves_the_peer_alone(options):
    with ends(options) as (a, b):
        b.mapping[:] = b"b" * len(b.mapping)
        remove(a.mapping)
        a.write(b)
        assert a.completion().status == WCStatus.LOC_PROT_ERR
        assert b.mapping[:] == b"b" * len(b.mapping)


@BACK_ENDS
def test_a_write_ends_at_the_first_page_that_is_absent(options):
    """The packets before it have arrived: the card reads ahead, but only what is there."""
    with ends(options) as (a, b):
        a.mapping[:], b.mapping[:] = b"a" * len(a.mapping), b"b" * len(b.mapping)
        remove(a.mapping, PAGE)
        a.write(b, length=2 * PAGE)
        assert a.completion().status == WCStatus.LOC_PROT_ERR
        b.write(a)
        assert b.completion().status != WCStatus.SUCCESS      # the QP of `a` failed; the packets have arrived meanwhile
        assert b.mapping[:] == b"a" * PAGE + b"b" * PAGE


@BACK_ENDS
def test_a_write_from_absent_pages_to_the_same_card_fails(options):
    with local_daemon(**options) as (daemon, messages):
        a, b = RawEnd(daemon, "a"), RawEnd(daemon, "a")
        a.connect(b)
        b.connect(a)
        b.mapping[:] = b"b" * len(b.mapping)
        remove(a.mapping)
        a.write(b)
        assert a.completion().status == WCStatus.LOC_PROT_ERR
        assert b.mapping[:] == b"b" * len(b.mapping) and not messages


@BACK_ENDS
def test_a_write_to_absent_pages_is_dropped(options):
    with ends(options) as (a, b):
        remove(b.mapping)
        a.write(b)
        assert a.completion().status == WCStatus.SUCCESS


@BACK_ENDS
@pytest.mark.parametrize("opcode", [WROpcode.RDMA_READ, WROpcode.ATOMIC_FETCH_AND_ADD])
def test_what_absent_pages_would_answer_never_arrives(options, opcode):
    with ends(options) as (a, b):
        a.mapping[:] = b"a" * len(a.mapping)
        remove(b.mapping)
        a.write(b, opcode=opcode, length=PAGE if opcode is WROpcode.RDMA_READ else 8)
        assert a.completion().status != WCStatus.SUCCESS
        assert a.mapping[:] == b"a" * len(a.mapping)


@pytest.mark.parametrize("options", [*BACKENDS[:2], {"backend_type": EagerBackend}], ids=["wall", "simulated", "eager"])
@pytest.mark.parametrize("to", ["read", "write from"])
@pytest.mark.parametrize("only", [True, False], ids=["program", "child"])
def test_memory_of_a_process_that_ended_is_silent(options, to, only):
    """The program is dropped before its connection shows that it ended, unless only its child ended."""
    with local_daemon(**options) as (daemon, messages):
        a, b = RawEnd(daemon, "a"), RawEnd(daemon, "b")
        child = os.fork()
        if not child:
            signal.pause()
        file, own = os.open(f"/proc/{child}/mem", os.O_RDWR), b.keys
        b.keys = b.register(b.share(file), address_of(b.mapping), len(b.mapping), b.pd)
        os.close(file)
        if only:
            b.call(Opcode.DESTROY, kind=Kind.MR, handle=own.handle)
            b.call(Opcode.DESTROY, kind=Kind.MEMORY, handle=b.shared)
        a.connect(b)
        b.connect(a)
        a.mapping[:] = b"a" * len(a.mapping)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if to == "read":
            a.write(b, opcode=WROpcode.RDMA_READ)
            assert a.completion().status in (WCStatus.RETRY_EXC_ERR, WCStatus.REM_OP_ERR)
        else:
            b.write(a)
            if only:
                settle(daemon, 1)
            else:
                assert b.completion().status == WCStatus.LOC_PROT_ERR
        assert a.mapping[:] == b"a" * len(a.mapping)
        if only:
            settle(daemon, 1)
        else:
            for _ in range(TURNS):
                daemon.turn()
            b.call(Opcode.QUERY_DEVICE)
            b.close()
        a.close()
        settle(daemon, 0)
        assert not messages


def test_removed_pages_are_absent():
    mapping = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    remove(mapping)
    child = os.fork()
    if not child:
        faulthandler.disable()
        mapping[0] = 1      # ends the child
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGBUS
