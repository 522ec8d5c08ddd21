"""Pages that the library replaces while threads write to them: a C program counts, and no count is lost."""

import subprocess
from pathlib import Path

from weft.driver.ibverbs.build import compiler
from weft.tb.flow.seed import drawn_seed
from weft.tb.serve.session import serving

ROUNDS = 60
SOURCE = Path(__file__).with_name("overlap.c")


def test_overlapping_registrations_lose_no_write(tmp_path, library):
    program, seed = tmp_path / "overlap", drawn_seed()
    with serving("--preset", "test") as session:
        subprocess.run([compiler(), "-O2", "-Wall", "-Werror", "-o", program, SOURCE, f"-L{library.parent}",
                        f"-l:{library.name}", "-lpthread"], check=True)
        ended = session.run("a", str(program), str(ROUNDS), str(seed), limit_s=300)
    assert ended.status == 0, f"{ended} with {ROUNDS} rounds and seed {seed}"
    assert f"{2 * ROUNDS} registrations" in ended.output
