"""Reader of captures with tshark.

Dissectors that guess the protocol of an RDMA payload are disabled: they mark payloads that are not theirs.
"""

import functools
import shutil
import subprocess

from weft.tb.sim.flow.simulators import MissingTool
from weft.tb.test.system import absence, need

# Heuristic dissectors below InfiniBand.
GUESSING = ("rpcordma", "infiniband.mad", "sdp", "nvme-rdma", "smb_direct", "iser", "ipoib")
MALFORMED = "_ws.malformed"


def need_tshark():
    """Require tshark, see :func:`~weft.tb.test.system.need`."""
    need("tshark")


def fields(path, names, options=()):
    """Return one dict per frame of the capture, from field name to text; an absent field is empty.

    ``options`` are passed to tshark.

    The marks of :func:`marks` are included, under :data:`MALFORMED`.
    """
    if not shutil.which("tshark"):
        raise MissingTool(absence("tshark"))
    wanted = [*names, MALFORMED]
    command = ["tshark", "-r", str(path), "-n", "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f",
               *options]
    for name in _known(GUESSING):
        command += ["--disable-protocol", name]
    for name in wanted:
        command += ["-e", name]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, f"tshark cannot read {path}: {run.stderr.strip()}"
    return [dict(zip(wanted, line.split("\t"), strict=True)) for line in run.stdout.splitlines()]


def number(text):
    """Return a tshark field as an int: decimal or 0x; None when absent."""
    return int(text, 0) if text else None


@functools.cache
def _known(names):
    """Return the protocols in ``names`` that this tshark has: it fails on a request to disable an unknown one."""
    listed = subprocess.run(["tshark", "-G", "protocols"], capture_output=True, text=True).stdout
    have = {line.split("\t")[2] for line in listed.splitlines() if line.count("\t") >= 2}
    return [name for name in names if name in have]
