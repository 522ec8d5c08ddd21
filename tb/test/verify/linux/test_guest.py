"""Orders and reports between host and agent, without QEMU: the agent is a process here, with other programs."""

import shutil
import sys
from pathlib import Path

import pytest

from weft.tb.verify.linux import guest as module
from weft.tb.verify.linux.guest import Guest, GuestFailed

PROGRAMS = """
import json, os, time
def load(program):
    return program
def run(program, arguments, source, sink):
    put = lambda value: os.write(sink, json.dumps(value).encode() + b"\\\\n")
    if program == "echo":
        put(arguments)
        put({"had": json.loads(os.read(source, 1000))})
    elif program == "fail":
        raise ValueError("no such thing")
    elif program == "end":
        os._exit(3)
    elif program == "deaf":
        os.close(source)
        put("closed")
        time.sleep(1000)
    else:
        put("here")
        time.sleep(1000)
""".replace("\\\\", "\\")
START = ("import socket, sys; sys.path.insert(0, sys.argv[1]); import guest_agent; s = socket.socket(socket.AF_UNIX); "
         "s.connect(sys.argv[2]); guest_agent.Agent(s.fileno()).run()")


@pytest.fixture
def guest(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_S", 60)
    shutil.copy(Path(module.__file__).parent / "guest_agent.py", tmp_path)
    (tmp_path / "guest_programs.py").write_text(PROGRAMS)
    with Guest(lambda console, port: [sys.executable, "-c", START, str(tmp_path), str(port)], tmp_path, "a") as guest:
        guest.booted()
        yield guest


def test_programs_run_beside_each_other_and_end_as_reported(guest):
    sleeper, echo = guest.start("sleep"), guest.start("echo", number=7)
    assert sleeper.get() == "here" and echo.get() == {"number": 7}
    echo.put([1, 2])
    assert echo.result() == {"had": [1, 2]} and echo.status == 0
    sleeper.kill()
    deaf = guest.start("deaf")
    assert deaf.get() == "closed"
    deaf.put(1)
    guest.start("sleep").get()
    guest.kill_jobs()
    with pytest.raises(GuestFailed, match="no such thing"):
        guest.run("fail")
    with pytest.raises(GuestFailed, match="ended with status 768 and put out nothing more"):
        guest.run("end")
    guest.shut_down()


def test_a_guest_that_ends_is_noticed(guest):
    job = guest.start("sleep")
    job.get()
    guest.process.kill()
    with pytest.raises(GuestFailed, match="the guest has ended"):
        job.end()
    for order in (job.kill, guest.shut_down):
        with pytest.raises(GuestFailed, match="takes no order"):
            order()


def test_a_qemu_that_does_not_start_is_reported(tmp_path):
    with pytest.raises(GuestFailed, match="does not start: no such device"):
        Guest(lambda console, port: ["sh", "-c", "echo no such device; exit 1"], tmp_path, "a")
