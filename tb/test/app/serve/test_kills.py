"""Tests of killed programs in separate namespaces: the daemon continues, peers are notified, no state is left."""

import re
import subprocess
import sys

import pytest

from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.programs.kills import readable_by_others
from weft.tb.verify.programs.namespaces import namespaces

KILLS, LIMIT_S = 4, 600
BACKENDS = ("functional", "direct")


@pytest.mark.parametrize("backend", BACKENDS)
def test_terminated_program_leaves_nothing_and_its_peer_is_notified(library, needs_namespaces, backend):
    with needs_namespaces(), namespaces():
        pass
    command = [sys.executable, "-m", "weft.tb.verify.programs.kills", str(KILLS), str(drawn_seed()), backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    found = re.search(r": (\d+) killed; (\d+) others .*, (\d+) had not", done.stdout)
    killed, notified, alone = map(int, found.groups())
    assert killed == notified + alone == KILLS
    assert notified >= KILLS // 2


def test_a_folder_below_a_private_one_is_not_readable(tmp_path):
    (inner := tmp_path / "private/inner").mkdir(parents=True)
    assert not readable_by_others(inner), "pytest's folders are private"
