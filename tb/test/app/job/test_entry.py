"""Tests of the main job as started by a user: odd environments, concurrent runs, and error messages."""

import io
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from weft.tb.app.job.report import headline, print_report
from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.link.pcap import read_pcap
from weft.tb.test.decoder import decode
from weft.tb.test.interrupts import watch_interrupts

WEFT = [sys.executable, "-m", "weft.tb.cli"]
SMALL = {"--loss": "0.1", "--rtt-us": "2", "--pmtu": "256"}
LIMIT_S = 1800
POLL_S = 0.1


@contextmanager
def weft(*words, cwd=None, **environment):
    """Start ``weft``; return the process."""
    process = subprocess.Popen([*WEFT, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               stdin=subprocess.DEVNULL, cwd=cwd, preexec_fn=watch_interrupts,
                               env={**os.environ, "WEFT_BUILD": str(BUILD_ROOT), **environment})
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process):
    """Return status, output and errors of a ``weft`` that ends by itself."""
    output, errors = process.communicate(timeout=LIMIT_S)
    return process.returncode, output, errors


def sim_words(file, **more):
    return ["sim", *sum({"--file": str(file), **SMALL, **more}.items(), ())]


def some_file(path, size, seed=1):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(random.Random(seed).randbytes(size))
    return path


def line(output, name):
    """Return the value of the line ``name`` of a report."""
    return next(line.removeprefix(name).strip() for line in output.splitlines() if line.startswith(name))


def test_unusual_names_and_environments(tmp_path, own_root):
    """A name like markup, an ASCII terminal, variables that control cocotb; the printed command runs unchanged."""
    file = some_file(tmp_path / "[red]two  µ[/], it's", 3000)
    odd = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "COCOTB_TEST_FILTER": "none",
           "COCOTB_TESTCASE": "none", "COLUMNS": "40"}
    with weft(*sim_words(file), "-v", WEFT_BUILD=str(own_root), **odd) as process:
        status, output, errors = ended(process)
    assert status == 0, output + errors
    assert "[red]two  " in output and "RTT 2 us" in output and "PASSED" in output
    report = json.loads((own_root / "reports/sim.json").read_text())
    assert line(output, "sha256 received") == report["sha256_received"]
    assert line(output, "command").isascii() and report["ok"]
    again = subprocess.run(["sh", "-c", f"{report['command']} -v"], capture_output=True, encoding="utf-8",
                           stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONUTF8": "1"})
    assert again.returncode == 0, again.stdout + again.stderr
    assert line(again.stdout, "command") == report["command"]
    assert shlex.split(report["command"])[3] == str(file)


def test_what_is_printed_is_short(tmp_path):
    """A sentence, five figures, the verdict and the places of the results; the JSON has everything."""
    file = some_file(tmp_path / "file", 20_000)
    with weft(*sim_words(file), "--backend", "model", WEFT_BUILD=str(tmp_path)) as process:
        status, output, errors = ended(process)
    assert status == 0, output + errors
    report = json.loads((tmp_path / "reports/sim.json").read_text())
    _, sentence, *figures, verdict, captures, place = output.splitlines()
    lost = report["packets_lost"]
    assert lost > 0 and sentence == (f"19.5 KiB arrived intact; of {report['packets_sent']} packets {lost} were lost, "
                                     f"{lost} retransmitted, none spuriously")
    assert len(figures) == 5 and line(output, "packets lost") == str(lost)
    assert verdict == "PASSED" and captures.startswith("captures ") and place.startswith("report ")
    assert "sha256" not in output and report["sha256_sent"] == report["sha256_received"]


@pytest.mark.parametrize(("more", "sentence"), [
    ({}, "1 MiB arrived intact; of 1,030 packets 6 were lost, 6 retransmitted, none spuriously"),
    ({"bytes": 700, "packets_retransmitted": 8, "spurious_retransmissions": 2},
     "700 bytes arrived intact; of 1,030 packets 6 were lost, 8 retransmitted, 2 spuriously"),
    ({"sha256_received": "b", "spurious_retransmissions": None},
     "1 MiB did not arrive intact; of 1,030 packets 6 were lost, 6 retransmitted")])
def test_the_headline_is_a_sentence(more, sentence):
    report = {"bytes": 1 << 20, "sha256_sent": "a", "sha256_received": "a", "packets_sent": 1030, "packets_lost": 6,
              "packets_retransmitted": 6, "spurious_retransmissions": 0}
    assert headline(report | more) == sentence


def test_concurrent_runs_do_not_mix(tmp_path, own_root):
    """Both deliver, and all results under the stable names are of one of them."""
    files = [some_file(tmp_path / f"file{seed}", 20_000 + seed, seed) for seed in (1, 2)]
    place = {"WEFT_BUILD": str(own_root)}
    with (weft(*sim_words(files[0]), **place) as one,
          weft(*sim_words(files[1], **{"--pmtu": "1024"}), **place) as other):
        for process, file in zip((one, other), files, strict=True):
            status, output, errors = ended(process)
            assert status == 0, output + errors
            assert json.loads(Path(line(output, "report")).read_text())["file"] == str(file)
            assert (Path(line(output, "captures")) / "a_to_b.sent.pcap").exists()
    report = json.loads((own_root / "reports/sim.json").read_text())
    assert report["ok"] and Path(report["file"]) in files
    pieces = {}
    for _, frame in read_pcap(own_root / "captures/a_to_b.sent.pcap"):
        packet = decode(frame)
        if packet.payload:
            pieces[packet.va] = packet.payload
    sent = b"".join(pieces[va] for va in sorted(pieces))
    assert Path(report["file"]).read_bytes() in sent


def test_stopped_run_leaves_no_files(tmp_path, own_root):
    """SIGINT to the parent alone, while the simulator runs, is reported, and an older result is removed."""
    left = own_root / "reports/sim.json"
    left.parent.mkdir()
    left.write_text("{}")
    file = some_file(tmp_path / "file", 1 << 20)

    def begun():
        return list(BUILD_ROOT.glob("two-cards-*/run-*test_stopped_run*/progress.jsonl"))
    for older in begun():
        older.unlink()
    with weft(*sim_words(file, **{"--rtt-us": "100000"}), WEFT_BUILD=str(own_root)) as process:
        while not begun():
            assert process.poll() is None
            time.sleep(POLL_S)
        process.send_signal(signal.SIGINT)
        status, _, errors = ended(process)
    assert (status, errors) == (130, "weft: stopped\n")
    assert not left.exists() and not (own_root / "captures").exists()


def plain_file(tmp_path):
    (tmp_path / "build").touch()
    return tmp_path / "build", "is not a folder"


def below_a_file(tmp_path):
    (tmp_path / "file").touch()
    return tmp_path / "file/build", "a part of it is not a folder"


def read_only(tmp_path):
    """Return a path in a file system that is read-only for every user, including root."""
    return Path("/proc/weft"), "/proc/weft"


@pytest.mark.parametrize("command", ["sim", "bench"])
@pytest.mark.parametrize("place", [plain_file, below_a_file, read_only])
def test_unwritable_folder_prints_a_sentence(tmp_path, command, place):
    folder, words = place(tmp_path)
    more = [*sim_words(some_file(tmp_path / "small", 10)), "--sim", "icarus"] if command == "sim" else [
        "bench", "--only", "latency"]
    with weft(*more, WEFT_BUILD=str(folder)) as process:
        status, _, errors = ended(process)
    assert status == 1 and words in errors
    assert errors.startswith("weft: ") and errors.count("\n") == 1


def test_full_disk_prints_a_sentence():
    with weft("regs", "--output", "/dev/full") as process:
        status, _, errors = ended(process)
    assert (status, errors) == (1, "weft: the disk is full; free space, or name another folder in WEFT_BUILD\n")


def test_deleted_working_folder_prints_a_sentence(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {shlex.quote(str(gone))} && rmdir {shlex.quote(str(gone))} && exec {shlex.join(WEFT)} sim"
    environment = {name: value for name, value in os.environ.items() if name != "WEFT_BUILD"}
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (
        1, "weft: the working folder does not exist any more; change to one that does\n")


def test_long_report_lines_are_not_wrapped(tmp_path):
    path = tmp_path / "sim.json"
    report = {"ok": True, "failures": [], "warnings": ["2 packets [were] sent again"], "sha256_sent": "ab" * 32,
              "command": "weft sim " + "--option 'a  b' " * 20}
    path.write_text(json.dumps(report))
    out = io.StringIO()
    assert print_report(Console(file=out, width=40), path)
    lines = out.getvalue().splitlines()
    assert any(line.endswith(report["sha256_sent"]) for line in lines)
    assert any(line.rstrip().endswith(report["command"].rstrip()) for line in lines)
    assert "warning: 2 packets [were] sent again" in lines and lines[-1] == "PASSED"
