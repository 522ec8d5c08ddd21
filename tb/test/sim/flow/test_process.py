"""Tests that the processes of a run end with it: after a signal to the parent alone, SIGKILL, or a time-out."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import cocotb
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from cocotb.triggers import ClockCycles

from weft.tb.sim.flow import process
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.test.interrupts import watch_interrupts

LIMIT_S = 120
# Started like a compiler: a program that starts another one. Both hold the pipe open while they run.
NESTED = 'sh -c "echo begun; sleep 1000; true" & echo begun; wait'


class Counter(wiring.Component):
    """A design to simulate."""

    o: Out(8)

    def elaborate(self, _platform):
        m = Module()
        count = Signal(8)
        m.d.sync += count.eq(count + 1)
        m.d.comb += self.o.eq(count)
        return m


@cocotb.test(skip="WEFT_ALIVE" not in os.environ)
async def forever(dut):
    """Hold open, while it runs, the pipe that the test reads."""
    await start_clock(dut)
    with open(os.environ["WEFT_ALIVE"], "w") as alive:
        print("begun", file=alive, flush=True)
        while True:
            await ClockCycles(dut.clk, 1000)


class Pipe:
    """Reading end of a named pipe: detects the begin of its writers, and the end of the last one."""

    def __init__(self, path):
        self.path = path
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def begun(self, count):
        """Wait for ``count`` lines."""
        text = b""
        while text.count(b"\n") < count:
            assert (more := self._read()), "they were gone before they began"
            text += more

    def has_begun(self):
        """Return True if a process has ever opened the other end."""
        return bool(select.select([self._end], [], [], 0)[0])

    def wait_until_closed(self):
        """Wait until no process has the other end open."""
        while self._read():
            pass

    def _read(self):
        ready, _, _ = select.select([self._end], [], [], LIMIT_S)
        assert ready, "nothing happens"
        return os.read(self._end, 4096)

    def close(self):
        os.close(self._end)


@pytest.fixture
def pipe(tmp_path):
    pipe = Pipe(tmp_path / "alive")
    yield pipe
    pipe.close()


def start(code, *arguments):
    """Return a Python process that runs ``code``."""
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], start_new_session=True,
                            preexec_fn=watch_interrupts, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


COMMAND = """
import sys
from weft.tb.sim.flow import process
with open(sys.argv[1], "w") as out:
    process.run(["sh", "-c", sys.argv[2]], cwd="/", out=out)
"""
SIMULATION = """
import sys
from weft.tb.sim.flow.simulate import simulate
from weft.tb.test.sim.flow.test_process import Counter
simulate(Counter(), name="process", cases=sys.argv[2], sim=sys.argv[3], env={"WEFT_ALIVE": sys.argv[1]})
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_compiler_and_its_children_end_with_the_parent(pipe, number):
    parent = start(COMMAND, pipe.path, NESTED)
    pipe.begun(2)
    os.kill(parent.pid, number)
    pipe.wait_until_closed()
    assert parent.wait(LIMIT_S) != 0


@pytest.mark.parametrize("sim", SIMULATORS)
def test_a_simulator_ends_with_the_parent(pipe, sim):
    parent = start(SIMULATION, pipe.path, Path(__file__), sim)
    pipe.begun(1)
    os.kill(parent.pid, signal.SIGTERM)
    pipe.wait_until_closed()
    assert parent.wait(LIMIT_S) == -signal.SIGTERM


def test_too_long_run_is_stopped(pipe):
    """The time-out stops the simulator, not only its parent. On a busy machine the simulator takes a while to begin."""
    limit_s = 3
    while not pipe.has_begun():
        with pytest.raises(AssertionError, match=f"still running after {limit_s} s of wall clock"):
            simulate(Counter(), name="process", cases=__file__, env={"WEFT_ALIVE": str(pipe.path)}, timeout_s=limit_s)
        limit_s *= 2
    pipe.wait_until_closed()


def test_status_and_output_are_those_of_the_command(tmp_path):
    log = tmp_path / "log"
    for code, status in (("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$", 128 + signal.SIGSEGV)):
        with open(log, "w") as out:
            assert process.run(["sh", "-c", f'pwd; echo "$SAID" >&2; {code}'], cwd=tmp_path, out=out,
                               environment={"PATH": os.environ["PATH"], "SAID": "a  b"}) == status
        assert log.read_text() == f"{tmp_path}\na  b\n"
