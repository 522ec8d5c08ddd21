"""Tests that registered memory stays ordinary memory of the program, with a C program."""

from weft.tb.verify.programs.c_program import compiled
from weft.tb.verify.programs.session import serving


def test_memory_is_ordinary_at_every_point_of_a_registration(tmp_path, library):
    program = compiled("ordinary", tmp_path, library)
    with serving() as session:
        ended = session.run("a", str(program), limit_s=300)
    assert ended.status == 0, ended
    assert "41 checks, 0 failed" in ended.output


def test_signal_handlers_are_called_as_the_program_asked_in_simulated_time(tmp_path, library):
    program = compiled("ordinary", tmp_path, library)
    with serving("--preset", "test", "--time", "sim") as session:
        ended = session.run("a", str(program), "signals")
    assert ended.status == 0, ended
    assert ended.output == "signals: good\n"
