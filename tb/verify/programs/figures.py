"""Figures of served programs: costs of the library, of waiting and of idling, and campaigns against the daemon.

Times are processor times, for operations that run in the real time of this machine. The campaigns are those of the
tests in full size: fuzzed messages and ring entries, overlapping registrations during writes by threads, killed
programs.
"""

import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from weft.driver.ibverbs.build import build
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.programs.c_program import compiled
from weft.tb.verify.programs.local import BACKENDS, POLLED
from weft.tb.verify.programs.session import serving

ROUNDS, SPIN_S, IDLE_S, START_S, LIMIT_S = 100, 5, 5, 3, 3600
MESSAGES, KILLS, REGISTRATIONS = 100_000, 200, 10_000
_NS = 1e-9


def measure(progress):
    seed, library = drawn_seed(), build(LIBRARY_FOLDER)
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder, serving("--preset", "test") as session:
        report_progress(progress, "post and poll", 0, 1)
        rows = times(session, compiled("post_poll", folder, library))
    rows += registrations(library, seed, progress)
    rows += messages(seed, progress)
    return rows + kills(seed, progress)


def times(session, program):
    """Measure post and poll, unsuccessful polling, and a daemon whose program is idle."""
    mean, alone = re.search(r"mean (\d+) median \d+ alone (\d+)", printed(session, program, str(ROUNDS))).groups()
    part, each = re.search(r"part ([\d.]+) each ([\d.]+)", printed(session, program, "spin", str(SPIN_S))).groups()
    idle = session.start("a", program, "idle", str(START_S + IDLE_S + START_S))
    time.sleep(START_S)
    before, at = processor_ns(session.process.pid), time.monotonic()
    time.sleep(IDLE_S)
    used, lasted = processor_ns(session.process.pid) - before, time.monotonic() - at
    assert idle.poll() is None, idle.communicate()[0]
    idle.kill()
    idle.communicate()
    return [
        Row("serve_post_poll_us", "us", int(mean) / 1000, at_most=1,
            conditions="64 small writes posted one by one, and polled one by one when they are done: processor time in "
                       "the library for each, the doorbell among them"),
        Row("serve_post_poll_alone_us", "us", int(alone) / 1000,
            conditions="the same of a single write, whose post wakes the daemon; median"),
        Row("serve_empty_poll_core_fraction", "", float(part), at_most=0.05,
            conditions="a program that polls an empty queue"),
        Row("serve_empty_poll_us", "us", float(each), at_most=5, conditions="mean of its polls"),
        Row("serve_idle_daemon_core_fraction", "", used * _NS / lasted, at_most=0.01,
            conditions="two hosts, a connected program that sleeps"),
    ]


def printed(session, program, *arguments):
    """Return the output of a program on host a; fail if it fails."""
    ended = session.run("a", str(program), *arguments, limit_s=LIMIT_S)
    assert ended.status == 0, f"{program} {arguments}: {ended}"
    return ended.output


def processor_ns(pid):
    """Return the processor time of all threads of a process in nanoseconds."""
    return sum(int(Path(task, "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


def registrations(library, seed, progress, count=REGISTRATIONS):
    """Return the rows of overlapping registrations of heap and stack."""
    report_progress(progress, f"overlapping registrations, seed {seed}", 0, 1)
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder, serving("--preset", "test") as session:
        output = printed(session, compiled("overlap", folder, library), str(count // 2), str(seed))
    done, wrong = re.search(r"(\d+) registrations, \d+ rounds of counting, (\d+) wrong bytes", output).groups()
    conditions = f"ranges of heap and stack that overlap, while three threads write; seed {seed}"
    return [Row("serve_registrations", "", int(done), at_least=count, conditions=conditions),
            Row("serve_registration_wrong_bytes", "", int(wrong), at_most=0, conditions=conditions)]


def messages(seed, progress, count=MESSAGES):
    """Return the rows of fuzzed messages and ring entries; separate processes hold only what their daemon holds."""
    tried = ended = 0
    share = count // len(POLLED)
    for name in POLLED:
        report = partial(report_progress, progress, f"messages to the {name} back end, seed {seed}", total=share)
        report(0)
        done, dropped = re.search(r": (\d+) messages and entries, (\d+) programs dropped", separate(
            "hostile", share, seed, name, report)).groups()
        tried += int(done)
        ended += int(dropped)
    conditions = ("valid, damaged and random messages and ring entries, half of them on each back end; other programs "
                  f"exchange data; nothing is left, no byte outside of regions changes; seed {seed}")
    return [Row("serve_fuzzed_messages", "", tried, at_least=count, conditions=conditions),
            Row("serve_fuzzed_dropped", "", ended, conditions=conditions)]


def kills(seed, progress, count=KILLS):
    """Return the rows of killed programs; separate processes run them, because they give up root privileges."""
    rows = []
    for backend in BACKENDS:
        report_progress(progress, f"programs that are killed on the {backend} back end, seed {seed}", 0, 1)
        killed, notified = re.search(r": (\d+) killed; (\d+) others got RETRY_EXC_ERR", separate(
            "kills", count, seed, backend)).groups()
        conditions = (f"{backend} back end; SIGKILL at any moment, two network namespaces, no privilege; nothing is "
                      f"left; seed {seed}")
        name = "serve_kills" if backend == "functional" else f"serve_kills_{backend}"
        rows += [Row(name, "", int(killed), at_least=count, conditions=conditions),
                 Row(f"{name}_peers_notified", "", int(notified), at_least=count // 2, conditions=conditions)]
    return rows


def separate(campaign, count, seed, backend, report=lambda done: None):
    """Return the output of a campaign, a module of this package, in a separate process; fail if it fails.

    ``report(done)`` is called for each line that begins with a number.
    """
    command = [sys.executable, "-m", f"weft.tb.verify.programs.{campaign}", str(count), str(seed), backend]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if counted := re.match(r"\d+ ", line):
                report(int(counted[0]))
    assert process.returncode == 0, "".join(lines)
    return "".join(lines)
