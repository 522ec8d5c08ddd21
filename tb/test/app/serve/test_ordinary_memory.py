"""Tests that registered memory stays ordinary memory of the program, and signal handlers its own."""

import signal
import sys
from pathlib import Path

import pytest

from weft.tb.verify.programs.c_program import compiled
from weft.tb.verify.programs.session import serving

ORDINARY = Path(__file__).with_name("ordinary")


def test_memory_is_ordinary_at_every_point_of_a_registration(tmp_path, library):
    program = compiled(ORDINARY, tmp_path, library)
    with serving() as session:
        ended = session.run("a", str(program), limit_s=300)
    assert ended.status == 0, ended
    assert "42 checks, 0 failed" in ended.output


def test_signal_handlers_are_called_as_the_program_asked_in_simulated_time(tmp_path, library):
    program = compiled(ORDINARY, tmp_path, library)
    with serving("--preset", "test", "--time", "sim") as session:
        ended = session.run("a", str(program), "signals")
    assert ended.status == 0, ended
    assert ended.output == "signals: good\n"


# Python's own handler for a fault: enabled before the first or the second of two registrations, beside a thread.
FAULTING = """
import ctypes, faulthandler, resource, sys, threading
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
threading.Thread(target=threading.Event().wait, daemon=True).start()
verbs = ctypes.CDLL("libibverbs.so.1")
for name in ("ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr"):
    getattr(verbs, name).restype = ctypes.c_void_p
devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
pd = ctypes.c_void_p(verbs.ibv_alloc_pd(ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))))
memory = ctypes.create_string_buffer(1 << 16)
for step in ("first", "second"):
    if step == sys.argv[1]:
        faulthandler.enable()
    assert verbs.ibv_reg_mr(pd, memory, ctypes.c_size_t(len(memory)), 7)
print("registered", flush=True)
ctypes.string_at(8)
"""


@pytest.mark.parametrize("options", [(), ("--time", "sim")], ids=["wall", "sim"])
def test_a_fault_of_a_python_program_prints_one_traceback_and_ends_it(library, options):
    with serving("--preset", "test", *options) as session:
        for step in ("first", "second"):
            ended = session.run("a", sys.executable, "-c", FAULTING, step)
            assert ended.status == -signal.SIGSEGV, ended
            assert ended.output.startswith("registered") and ended.output.count("Fatal Python error") == 1
