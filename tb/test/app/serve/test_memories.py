"""Test of memory of every kind, several contexts and threads, fork and events, with a C program."""

from pathlib import Path

from weft.tb.verify.programs.c_program import compiled
from weft.tb.verify.programs.session import serving

GOOD = ("heap", "much memory", "data", "bss", "stack", "read-only memory", "private memory of a file",
        "shared memory of a file", "shared anonymous memory", "System V memory", "memory of two contexts",
        "another place", "another address", "fork", "threads", "events")
REFUSED = ("read-only memory to write", "read-only memory of a file to write", "memory without permission",
           "memory that is not there")


def test_memory_of_every_kind_is_shared_and_released(tmp_path, library):
    program = compiled(Path(__file__).with_name("memories"), tmp_path, library)
    with serving("--preset", "test") as session:
        ended = session.run("a", str(program), limit_s=300)
    assert ended.status == 0, ended
    lines = dict(line.split(": ", 1) for line in ended.output.splitlines())
    assert {kind: lines.get(kind) for kind in GOOD} == dict.fromkeys(GOOD, "good")
    assert lines["huge pages"] in ("good", "none here")
    assert all(lines[kind].startswith("refused, ") for kind in REFUSED)
