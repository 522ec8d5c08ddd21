"""Programs that are killed at random times: ``python -m weft.tb.verify.programs.kills [KILLS] [SEED] [BACKEND]``.

Two programs on two hosts, each in a separate network namespace, write to each other's memory; one of them gets
SIGKILL. The daemon must survive, the other program must get the completion status RETRY_EXC_ERR, and the resources of
both must be freed. The programs run without root privileges and without a device file: started as root, the process
switches to another user, if that user can read this checkout.
"""

import os
import random
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter

from weft.driver.ibverbs.build import build
from weft.driver.terms.enums import WCStatus
from weft.tb.app.serve.environment import LIBRARY_FOLDER, environment_of
from weft.tb.verify.programs.c_program import compiled
from weft.tb.verify.programs.hostile import Held, clean, settle
from weft.tb.verify.programs.local import BACKENDS, local_daemon
from weft.tb.verify.programs.namespaces import ADDRESSES, NoNamespaces, namespaces

COMMAND = ".venv/bin/python -m weft.tb.verify.programs.kills {count} {seed}"
FIRST_PORT, PORTS, LIMIT_S = 21000, 8000, 120
SOON_S, LATE_S = 0.06, 0.4      # largest delay of a kill: during set-up of a program, or later
NOBODY = 65534
TALKED, ALONE = "talked", "alone"


class Pair:
    """Two programs that write to each other, on hosts a and b."""

    def __init__(self, daemon, spaces, program, port, seed):
        self._daemon, self._start = daemon, lambda host, *more: subprocess.Popen(
            spaces.inside(host, [program, str(seed + (host == "a")), str(port), *more]), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment_of(daemon.paths[host]))
        self.output = {"a": b"", "b": b""}
        self.programs = {"b": self._start("b")}

    def receive(self, host, sentence):
        """Return whether the program of a host has printed ``sentence`` by now."""
        program = self.programs.get(host)
        if program is None:
            return False
        os.set_blocking(program.stdout.fileno(), False)
        self.output[host] += program.stdout.read() or b""
        return sentence in self.output[host]

    def go(self, until):
        """Run daemon and programs until ``until()`` holds; the client starts when the server listens."""
        limit = time.monotonic() + LIMIT_S
        while not until():
            self._daemon.turn()
            if "a" not in self.programs and (self.receive("b", b"listens") or self.programs["b"].poll() is not None):
                self.programs["a"] = self._start("a", ADDRESSES["b"])
            assert time.monotonic() < limit, self.output

    def ended(self, host):
        return host in self.programs and self.programs[host].poll() is not None

    def close(self):
        for program in self.programs.values():
            program.kill()
            program.wait()
            program.stdout.close()
            program.stdin.close()


def one(pair, rng, late):
    """Kill one of the two programs; ``late``: after both have exchanged data.

    Return :data:`TALKED` if the other program got an error completion, or :data:`ALONE` if it had no peer yet.
    """
    victim = rng.choice("ab")
    other = "b" if victim == "a" else "a"
    pair.go(lambda: victim in pair.programs)
    if late:
        pair.go(lambda: pair.receive(other, b"talks") and pair.receive(victim, b"talks"))
    end = time.monotonic() + rng.random() * rng.choice((SOON_S, LATE_S))
    pair.go(lambda: time.monotonic() > end)
    assert not any(pair.ended(host) for host in pair.programs), pair.output
    pair.programs[victim].kill()
    pair.go(lambda: pair.ended(victim))
    if other in pair.programs:
        pair.programs[other].stdin.close()
    pair.go(lambda: pair.ended(other))
    talked, printed = pair.receive(other, b"talks"), pair.output[other].decode()
    found = re.search(r"^status (\d+) after", printed, re.MULTILINE)
    if found is None:
        assert not talked and "no peer" in printed, printed
        return ALONE
    assert int(found[1]) == WCStatus.RETRY_EXC_ERR, printed
    return TALKED


def campaign(count, seed, library, progress=lambda done: None, backend="functional"):
    """Kill ``count`` programs; return a counter of the outcomes of :func:`one`.

    Raises AssertionError if resources are left, or another program got another error or none; or NoNamespaces.
    """
    rng, found, first = random.Random(seed), Counter(), None
    options = {"library": library} if backend == "direct" else {}
    with tempfile.TemporaryDirectory(prefix="weft-kills-") as folder, namespaces() as spaces, \
            local_daemon(backend_type=BACKENDS[backend], **options) as (daemon, printed):
        program = compiled("chatter", folder, library)
        for n in range(count):
            pair = Pair(daemon, spaces, program, FIRST_PORT + n % PORTS, rng.randrange(1 << 30))
            try:
                found[one(pair, rng, late=n % 3 > 0)] += 1
            finally:
                pair.close()
            settle(daemon, 0)
            clean(daemon.backend)
            first = first or Held.now()
            first.check()
            progress(n + 1)
        assert not printed, printed
    return found


def readable_by_others(folder):
    """Return whether users other than the owner may enter a folder and all folders above it."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in (folder.absolute(), *folder.absolute().parents))


def main(count=200, seed=None, backend="functional"):
    """Kill ``count`` programs, and print the outcome."""
    seed = random.randrange(1 << 31) if seed is None else int(seed)
    library = build(LIBRARY_FOLDER)
    if os.geteuid() == 0 and readable_by_others(LIBRARY_FOLDER):
        sys.stdout.flush()
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    started = time.monotonic()
    found = campaign(int(count), seed, library, backend=backend)
    print(f"{backend}, seed {seed}, user {os.geteuid()}: {sum(found.values())} killed; "
          f"{found[TALKED]} others got RETRY_EXC_ERR, {found[ALONE]} had not talked yet; nothing is left; "
          f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except NoNamespaces as problem:
        sys.exit(str(problem))
