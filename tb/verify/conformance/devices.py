"""Runs of the conformance suite: on a device of this machine, or on each back end of `weft serve`."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from weft.tb.app.serve.settings import WITHOUT_HARDWARE
from weft.tb.verify.conformance.c_suite import build
from weft.tb.verify.programs.session import serving, stopped

NO_DEVICE = 2       # exit status of the program
VERDICTS = ("PASS", "FAIL", "UNSUPPORTED")      # first words of the program's lines
# In simulated time a wait takes none, and cards of the smallest size suffice.
OPTIONS = {"model": ("--time", "sim", "--preset", "test"), "rtl": ("--time", "sim", "--preset", "test")}
LIMIT_S = {"direct": 60, "functional": 60, "model": 300, "rtl": 600}      # of a case


class SuiteFailed(Exception):
    """The program of the suite has crashed or was ended; the message is a sentence."""


def peer_options(name: str) -> list[str]:
    """Return the options for a peer: a device of this name, or within `weft run` the card of the host of this name."""
    own = os.environ.get("WEFT_SOCKET")
    if own and (socket := Path(own).with_name(f"{name}.sock")).exists():
        return ["--peer-socket", str(socket)]
    return ["--peer", name]


def on_device(folder: Path, device: str, peer: str, only: Sequence[str],
              gid: int | None = None) -> tuple[int, dict[str, Any]]:
    """Run the suite on a device that this process sees, printing its lines; return its exit status and the result.

    ``gid`` is the index of the GID at both ends. Raises CannotBuild or SuiteFailed.
    """
    with tempfile.TemporaryDirectory(prefix="weft-conformance-") as scratch:
        found = Path(scratch, "cases.json")
        status = subprocess.run([build(folder), "--device", device, "--json", found, *_only(only),
                                 *(["--gid", str(gid)] if gid is not None else []),
                                 *(peer_options(peer) if peer else [])]).returncode
        return _checked(status), {"device": device, "peer": peer or device, "cases": _cases(found)}


def on_backend(folder: Path, backend: str, only: Sequence[str],
               report: Callable[[str], None]) -> tuple[int, dict[str, Any]]:
    """Serve a back end and run the suite between two hosts; return its exit status and the result.

    Reports totals, and the cases that do not pass; of the RTL, which takes minutes, all cases with their times.
    ``seconds`` of a case are of wall-clock time, even if the program's clock is simulated. Raises CannotServe,
    CannotBuild or SuiteFailed.
    """
    program = build(folder)
    with serving("--backend", backend, *OPTIONS.get(backend, ())) as session, \
            tempfile.TemporaryDirectory(prefix="weft-conformance-") as scratch:
        found = Path(scratch, "cases.json")
        with session.start("a", str(program), "--peer-socket", str(session.socket("b")), "--json", str(found),
                           "--limit", str(LIMIT_S[backend]), *_only(only)) as process:
            try:
                seconds = _followed(process.stdout, backend, report)
            except BaseException:      # the terminal interrupts this process only
                stopped(process)
                raise
        cases = [case | {"seconds": took} for case, took in zip(_cases(found), seconds, strict=False)]
        return _checked(process.returncode), {"backend": backend, "cases": cases}


def _followed(lines: Iterable[str], backend: str, report: Callable[[str], None]) -> list[float]:
    """Report the program's lines; return the seconds that each case took."""
    seconds: list[float] = []
    last = time.monotonic()
    for line in map(str.rstrip, lines):
        took = ""
        if line.startswith(VERDICTS):
            last, begun = time.monotonic(), last
            seconds.append(round(last - begun, 3))
            took = f", {last - begun:.1f} s"
        if backend == "rtl" or not line.startswith("PASS"):
            report(f"{backend}: {line}{took}")
    return seconds


def on_backends(folder: Path, backends: Sequence[str], only: Sequence[str],
                report: Callable[[str], None] = print) -> tuple[int, list[dict[str, Any]]]:
    """Run the suite on back ends, all if none is named; return the largest exit status, and the results."""
    ends = [on_backend(folder, backend, only, report) for backend in backends or WITHOUT_HARDWARE]
    return max(status for status, _ in ends), [result for _, result in ends]


def save(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Write results as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(results), indent=1) + "\n")


def _checked(status: int) -> int:
    if status not in (0, 1, NO_DEVICE):
        raise SuiteFailed(f"the conformance suite itself failed with status {status}; its last line is the last case "
                          "that ended")
    return status


def _only(names: Sequence[str]) -> list[str]:
    return [word for name in names for word in ("--only", name)]


def _cases(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text()) if path.exists() and path.stat().st_size else []
