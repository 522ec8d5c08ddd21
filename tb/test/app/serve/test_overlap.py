"""Test of registrations of memory while threads write to it: a C program counts, and no count is lost."""

from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.programs.c_program import compiled
from weft.tb.verify.programs.session import serving

ROUNDS = 60


def test_overlapping_registrations_lose_no_write(tmp_path, library):
    program, seed = compiled("overlap", tmp_path, library), drawn_seed()
    with serving("--preset", "test") as session:
        ended = session.run("a", str(program), str(ROUNDS), str(seed), limit_s=300)
    assert ended.status == 0, f"{ended} with {ROUNDS} rounds and seed {seed}"
    assert f"{2 * ROUNDS} registrations" in ended.output
    assert " 0 wrong bytes" in ended.output
