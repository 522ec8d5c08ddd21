"""The card as machine code does what the one in Python does, at the same times; here it is interpreted, which needs no
compilation. ``python -m weft.tb.verify.calibrate.beside`` does the same at length, as machine code."""

import os
import re
import subprocess
import sys

from weft.tb.sim.flow.seed import drawn_seed

SEED = drawn_seed(__name__)


def test_machine_code_and_python_do_the_same():
    print(f"run it again with WEFT_SEED={SEED}")
    done = subprocess.run([sys.executable, "-m", "weft.tb.verify.calibrate.beside", "3", str(SEED), "5"], capture_output=True,
                          text=True, check=False, env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    print(done.stdout, done.stderr)
    assert done.returncode == 0 and not done.stderr.strip()
    assert int(re.search(r"(\d+) packets", done.stdout)[1]) > 10
