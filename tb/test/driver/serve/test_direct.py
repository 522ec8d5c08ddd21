"""Tests of the direct back end: programs on it, and random programs on it and on functional cards."""

import time

import pytest

from weft.driver.ibverbs.build import missing
from weft.driver.ibverbs.messages import Opcode
from weft.driver.terms.enums import QPAttrMask, QPState, WCStatus, WROpcode
from weft.model.settings import BadSetting
from weft.tb.app.serve.settings import Settings
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.flow.system import tools_expected
from weft.tb.verify.programs import oracle
from weft.tb.verify.programs.figures import processor_ns
from weft.tb.verify.programs.hostile import clean, pair, settle, works
from weft.tb.verify.programs.local import PolledBackend, local_daemon
from weft.tb.verify.programs.programs import TABLE, missing_packages
from weft.tb.verify.programs.raw_client import PAGE, VA, Rejected
from weft.tb.verify.programs.run import PASSED, one
from weft.tb.verify.programs.session import serving

PORT, REQUESTS, IDLE_S, CORE = 23900, 600, 1, 0.05
CHOSEN = ("ibv_rc_pingpong", "ibv_rc_pingpong -c -e", "ibv_srq_pingpong", "ib_write_bw -q 4", "ib_send_bw -e",
          "ib_read_bw", "ib_atomic_bw", "ib_write_lat", "ib_send_lat -e", "ib_send_lat -R", "rping", "fi_pingpong -c")


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


def test_idle_programs_take_no_processor(session):
    program = session.start("a", "ibv_rc_pingpong", "-g", "0", "-p", str(PORT + 90))      # waits for its client
    time.sleep(IDLE_S)
    before = processor_ns(session.process.pid)
    time.sleep(IDLE_S)
    used = processor_ns(session.process.pid) - before
    program.kill()
    program.communicate()
    assert used <= CORE * IDLE_S * 1e9


def test_random_programs_see_the_same_on_functional_cards():
    seed = drawn_seed()
    print("again:", oracle.COMMAND.format(count=REQUESTS, seed=seed))
    statuses, executed, differences = oracle.check(REQUESTS, seed)
    assert not differences, differences[0]
    assert executed > REQUESTS // 10 and {"SUCCESS", "WR_FLUSH_ERR"} < set(statuses)


def test_the_oracle_notices_a_difference(monkeypatch):
    """A completion of another length on one back end only."""
    real, calls = oracle.play, []

    def play(*arguments):
        outcome = real(*arguments)
        calls.append(outcome)
        if len(calls) == 1:
            (found, _), *_ = outcome[0]
            found[0][0].append("another completion")
        return outcome

    monkeypatch.setattr(oracle, "play", play)
    *_, differences = oracle.check(10, 1)
    assert differences[0].startswith("program 0: round 0")


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


def test_a_request_waits_for_its_receive_and_fails_with_its_peer(served):
    daemon, _ = served
    a, b = pair(daemon)
    a.write(b, opcode=WROpcode.SEND)
    for _ in range(5):
        daemon.turn()
    assert not a.completions.take()
    b.call(Opcode.MODIFY_QP, handle=b.qp.handle, mask=QPAttrMask.STATE, qp_state=QPState.ERR)
    assert a.completion().status == WCStatus.RETRY_EXC_ERR
    for end in (a, b):
        end.close()
    settle(daemon, 0)
    clean(daemon.backend)


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
