"""Programs that are killed at any moment: ``python -m weft.tb.verify.programs.kills [KILLS] [SEED]``.

Two programs on two hosts, each in a network namespace of its own, write into each other's memory; one of them gets
SIGKILL. The daemon lives, the other program is told (RETRY_EXC_ERR), and what both had is free again. Nobody is root,
and there is no device: who starts this as root has it run by another user.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter

from weft.driver.ibverbs.build import build
from weft.driver.terms.enums import WCStatus
from weft.tb.app.serve.environment import LIBRARY_FOLDER, environment_of
from weft.tb.verify.programs.c_program import compiled
from weft.tb.verify.programs.hostile import settle
from weft.tb.verify.programs.local import left_over, local_daemon
from weft.tb.verify.programs.namespaces import ADDRESSES, NoNamespaces, namespaces

COMMAND = ".venv/bin/python -m weft.tb.verify.programs.kills {count} {seed}"
FIRST_PORT, PORTS, LIMIT_S = 21000, 8000, 120
SOON_S, LATE_S = 0.06, 0.4      # of a kill: while a program prepares itself, or later
NOBODY = 65534
TALKED, ALONE = "talked", "alone"


class Pair:
    """Two programs that talk, on hosts a and b."""

    def __init__(self, daemon, spaces, program, port, seed):
        self._daemon, self._start = daemon, lambda host, *more: subprocess.Popen(
            spaces.inside(host, [program, str(seed + (host == "a")), str(port), *more]), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment_of(daemon.paths[host]))
        self.output = {"a": b"", "b": b""}
        self.programs = {"b": self._start("b")}

    def hear(self, host, sentence):
        """Somebody said it, up to now."""
        program = self.programs.get(host)
        if program is None:
            return False
        os.set_blocking(program.stdout.fileno(), False)
        self.output[host] += program.stdout.read() or b""
        return sentence in self.output[host]

    def go(self, until):
        """Let all go on until ``until()``; the client starts when the server listens."""
        limit = time.monotonic() + LIMIT_S
        while not until():
            self._daemon.turn()
            if "a" not in self.programs and (self.hear("b", b"listens") or self.programs["b"].poll() is not None):
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
    """Kill one of two, ``late`` when they talk; what became of the other: :data:`TALKED` if its card told it of that,
    or :data:`ALONE`."""
    victim = rng.choice("ab")
    other = "b" if victim == "a" else "a"
    pair.go(lambda: victim in pair.programs)
    if late:
        pair.go(lambda: pair.hear(other, b"talks") and pair.hear(victim, b"talks"))
    end = time.monotonic() + rng.random() * rng.choice((SOON_S, LATE_S))
    pair.go(lambda: time.monotonic() > end)
    assert not any(pair.ended(host) for host in pair.programs), pair.output
    pair.programs[victim].kill()
    pair.go(lambda: pair.ended(victim))
    if other in pair.programs:
        pair.programs[other].stdin.close()
    pair.go(lambda: pair.ended(other))
    talked, said = pair.hear(other, b"talks"), pair.output[other].decode()
    told = re.search(r"^status (\d+) after", said, re.MULTILINE)
    if told is None:
        assert not talked and "no peer" in said, said
        return ALONE
    assert int(told[1]) == WCStatus.RETRY_EXC_ERR, said
    return TALKED


def campaign(count, seed, library, progress=lambda done: None):
    """Kill ``count`` programs; how many others were told by their card, and how many had not talked yet.

    Raises
    ------
    AssertionError
        If something is left, another error was told, or none.
    NoNamespaces
    """
    rng, found = random.Random(seed), Counter()
    with tempfile.TemporaryDirectory(prefix="weft-kills-") as folder, namespaces() as spaces, \
            local_daemon() as (daemon, said):
        program = compiled("chatter", folder, library)
        for n in range(count):
            pair = Pair(daemon, spaces, program, FIRST_PORT + n % PORTS, rng.randrange(1 << 30))
            try:
                found[one(pair, rng, late=n % 3 > 0)] += 1
            finally:
                pair.close()
            settle(daemon, 0)
            for host, counts in left_over(daemon.world).items():
                assert not any(counts), (host, counts)
            progress(n + 1)
        assert not said, said
    return found


def main(count=200, seed=None):
    """Kill so many, and print what became of the others."""
    seed = random.randrange(1 << 31) if seed is None else int(seed)
    library = build(LIBRARY_FOLDER)
    if os.geteuid() == 0:
        sys.stdout.flush()
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    started = time.monotonic()
    found = campaign(int(count), seed, library)
    print(f"seed {seed}, user {os.geteuid()}: {sum(found.values())} killed; {found[TALKED]} others got RETRY_EXC_ERR, "
          f"{found[ALONE]} had not talked yet; nothing is left; {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except NoNamespaces as problem:
        sys.exit(str(problem))
