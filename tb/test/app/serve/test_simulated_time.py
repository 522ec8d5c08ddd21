"""Tests of programs in simulated time: clocks, and figures that depend on the seed alone, with all kinds of cards."""

import json
import os
import random
import re
import select
import struct
import sys
from dataclasses import replace
from functools import partial

import pytest

from weft.driver.ibverbs.messages import Opcode
from weft.driver.ibverbs.rings import ASYNC_EVENT
from weft.driver.terms.enums import EventType, QPAttrMask, QPState
from weft.tb.app.serve.simulated import LoopBackend, ModelBackend
from weft.tb.sim.flow import simulators
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.verify.programs.hostile import fuzz, pair, settle, works
from weft.tb.verify.programs.local import local_daemon
from weft.tb.verify.programs.programs import PASSED, TABLE, missing_packages, one
from weft.tb.verify.programs.raw_client import RawEnd
from weft.tb.verify.programs.session import serving

SIMULATED = ("--time", "sim", "--preset", "test")
READING_NS, PORT, TURNS = 20, 26600, 20
# Clocks, the counter that they use, a sleep until a time, and a child program.
READINGS = """
import json, subprocess, sys, time
times = [time.monotonic_ns() for _ in range(5)]
before = time.time_ns()
time.sleep(0.001)
subprocess.run([sys.executable, "-c", "import time; time.perf_counter()"], check=True)
print(json.dumps([[b - a for a, b in zip(times, times[1:])], time.time_ns() - before, time.process_time_ns()]))
"""


def perftest(name, *options):
    """Return one of the table's programs, with options; skip the test if it is missing."""
    found = next(program for program in TABLE if program.name == name)
    if not found.there and not tools_expected():
        pytest.skip(f"{name} is missing; on Debian: apt-get install {' '.join(missing_packages([found]))}")
    return replace(found, options=(*found.options, *options))


def run(session, program, number):
    """Run a program that must pass; return its output."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    status, figure, output = one(session, program, PORT + 100 * worker + number, limit_s=300)
    assert status == PASSED, output
    return figure, output


@pytest.mark.parametrize("name", ["ib_write_bw", "ib_send_bw -e"])
def test_measurements_depend_on_the_seed_only(library, name):
    seed, program, found = str(drawn_seed()), perftest(*name.split(), "-n", "20"), []
    print("again: weft serve --time sim --preset test --loss 0.05 --seed", seed)
    for number in range(3):
        with serving(*SIMULATED, "--loss", "0.05", "--seed", seed) as session:
            figure, _ = run(session, program, number)
            lost, again = re.search(r"host a: .*; (\d+) packets lost, (\d+) sent again", session.end()).groups()
            assert lost == again
            found.append((figure, lost))
    assert found[0] == found[1] == found[2]


def test_clocks_show_simulated_time_and_it_stops(library):
    with serving(*SIMULATED) as session:
        page = session.socket("a").with_suffix(".clock")
        shown = page.read_bytes()
        result = session.run("a", sys.executable, "-c", READINGS)
        assert result.status == 0, result.output
        steps, all_of_it, processor = json.loads(result.output)
        assert steps == [READING_NS] * 4
        assert READING_NS <= all_of_it < 1_000_000 and all_of_it % READING_NS == 0
        assert processor > 1_000_000, "the processor's time is not a clock"
        assert page.read_bytes() == shown and struct.unpack_from("<Q", shown)[0]


@pytest.mark.parametrize("backend_type", [LoopBackend, ModelBackend])
def test_order_of_preparations_has_no_effect(backend_type):
    seed, found = drawn_seed(), []
    print("seed", seed)
    for order in ("ab", "ba", "abba"):      # order of preparation; the last one: a second, idle QP of each
        sent = []
        with local_daemon(simulated=True, backend_type=backend_type, loss=0.05, seed=seed) as (daemon, _):
            for name, link in daemon.backend.links.items():
                link.deliver = partial(_noted, sent, name, daemon.backend, link.deliver)
            ends = {}
            for host in order:
                while daemon.backend.due_ns is not None and ends:      # the cards do their pending work in between
                    daemon.backend.advance(daemon.backend.due_ns, frozenset())
                ends[host] = RawEnd(daemon, host)
            shown = daemon.now_ns
            for host in order[:2]:
                ends[host].connect(ends[next(other for other in "ab" if other != host)], retry_cnt=7)
            assert daemon.now_ns == shown      # calls take no time
            del sent[:]
            for _ in range(20):
                works(ends["a"], ends["b"])
        found.append([(host, round(at - sent[0][1], 3), length) for host, at, length in sent])
    assert len(found[0]) > 60
    assert found[0] == found[1] == found[2]


def _noted(sent, name, backend, deliver, frame, *at):
    sent.append((name, backend.now_ns, len(bytes(frame))))
    deliver(frame, *at)


@pytest.mark.parametrize("backend", ["model", "rtl"])
def test_program_measures_simulated_time(library, backend):
    if backend == "rtl":
        try:
            simulators.tool("verilator").check()
        except simulators.MissingTool as missing:
            if tools_expected():
                raise
            pytest.skip(str(missing))
    with serving("--backend", backend, *SIMULATED, "--first", "7") as session:
        devinfo = session.run("a", *perftest("ibv_devinfo").command())
        assert re.search(r"GID\[ *0\]:.*ffff:(10\.0\.0\.7|0a00:0007)\b", devinfo.output)
        latency, output = run(session, perftest("ib_write_lat", "-n", "5"), 3 + (backend == "rtl"))
        assert 2 < latency < 6, output      # PCIe and a microsecond of cable: in wall-clock time it is longer
        assert "0 lost; 0 packets lost, 0 sent again" in session.end()


def test_a_call_that_ends_a_sleep_of_the_daemon_has_its_event(monkeypatch):
    """The state SQD is entered by a call that arrives during the sleep, not at the beginning of a turn."""
    with local_daemon(simulated=True, backend_type=ModelBackend) as (daemon, _):
        end, _peer = pair(daemon)
        calls = daemon._calls
        monkeypatch.setattr(daemon, "_calls", lambda timeout_s: bool(timeout_s) and calls(timeout_s))
        end.call(Opcode.MODIFY_QP, handle=end.qp.handle, mask=QPAttrMask.STATE | QPAttrMask.EN_SQD_ASYNC_NOTIFY,
                 qp_state=QPState.SQD, en_sqd_async_notify=1)
        for _ in range(TURNS):
            if select.select([end.events], [], [], 0)[0]:
                break
            daemon.turn()
        assert ASYNC_EVENT.unpack(end.events.recv(ASYNC_EVENT.size_bytes)).event_type == EventType.SQ_DRAINED


def test_random_doorbells_and_messages_do_not_affect_other_programs():
    seed = drawn_seed()
    rng = random.Random(seed)
    print("seed", seed)
    with local_daemon(simulated=True) as (daemon, result):
        good, bad = pair(daemon), pair(daemon)
        for _ in range(20):
            at = rng.randrange(0, len(bad[0].bell), 4)
            bad[0].bell[at:at + 4] = rng.choice((rng.randbytes(4), b"\xff" * 4, bytes(4)))
            before = daemon.now_ns
            works(*good)
            assert daemon.now_ns > before
        for end in (*good, *bad):
            end.close()
        settle(daemon, 0)
        assert not daemon.programs
        found = fuzz(daemon, result, 200, rng).found
    assert found["answered"] and found["refused"], found
