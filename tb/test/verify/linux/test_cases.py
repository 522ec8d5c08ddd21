"""Cases of ``weft linux`` without QEMU: the agents are processes here, which reach their cards by vfio-user."""

import sys
from pathlib import Path

import pytest

from weft.tb.verify.linux import cases, lab
from weft.tb.verify.linux.guest import GuestFailed

FOLDER = Path(lab.__file__).parent
START = """
import socket, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import guest_programs as programs
from weft.tb.verify.linux.client import Client, guest_device
programs.open_device = lambda address: guest_device(Client(sys.argv[3]))
programs.card = lambda: "of the socket"
programs.HERE = Path(sys.argv[2])
programs.PROGRAMS["pins"] = lambda job: job.put({"pinned": 0})
import guest_agent
port = socket.socket(socket.AF_UNIX)
port.connect(sys.argv[4])
guest_agent.Agent(port.fileno()).run()
"""


class Processes(lab.Lab):
    """Lab whose guests are processes."""

    def _made(self):
        return ()

    def command(self, host, *, iommu):
        return lambda console, port: [sys.executable, "-c", START, str(FOLDER), str(FOLDER.parents[2] / "examples"),
                                      str(self.folder / f"{host}.sock"), str(port)]


@pytest.fixture
def pair(tmp_path):
    with Processes(tmp_path, preset="test", loss=0.05) as pair:
        pair.start()
        yield pair


def test_cases_pass_and_notice_what_is_wrong(pair, monkeypatch):
    assert cases.registers(pair)["register round trip"][0] > 0
    assert cases.ping_pong(pair, rounds=2)["rounds"] == (2, "")
    copied = cases.file_copy(pair, size=1 << 20)
    assert copied["lost"] == copied["sent again"] and copied["lost"][0] > 0 and copied["goodput"][0] > 0
    killed = cases.killed(pair)
    assert killed["unpinned"][0] > 256 and killed["rounds"] == (3, "")
    with monkeypatch.context() as patch:
        patch.setattr(cases, "FILE_COPY", ((0, 0),))
        with pytest.raises(GuestFailed, match="(?s)not enough values.*; file_copy on guest b runs.* links: .* cards: "):
            cases.file_copy(pair, size=1 << 16)
    for guest in pair.guests.values():
        guest.kill_jobs()
    frames = iter([(0, 0, 0), (9, 3, 4)])
    monkeypatch.setattr(lab.Lab, "frames", lambda self: next(frames))
    with pytest.raises(GuestFailed, match="3 packets lost, 4 sent again"):
        cases.file_copy(pair, size=1 << 16)
