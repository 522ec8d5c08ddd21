"""Hostile machine in a process: ``python -m weft.tb.test.app.machine.hostile SOCKET SEED`` connects again and again.

Each connection sends random messages with random descriptors, reads few of the replies, and ends at a random point.
"""

import array
import contextlib
import os
import socket
import sys

from weft.tb.test.driver.vfio_user.client import Client
from weft.tb.test.driver.vfio_user.test_fuzz import Fuzz

MESSAGES = 300


def attack(path, fuzz):
    """Be one connection."""
    client = Client(path)
    client.socket.settimeout(0.2)
    for _ in range(fuzz.rng.randrange(MESSAGES)):
        files = fuzz.files()
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        try:
            client.socket.sendmsg([fuzz.message()], ancillary)
        finally:
            for file in files:
                os.close(file)
        if fuzz.rng.random() < 0.8:
            with contextlib.suppress(BlockingIOError):
                client.socket.recv(1 << 16, socket.MSG_DONTWAIT)
    client.close()


def main(path, seed):
    fuzz, parent = Fuzz(int(seed)), os.getppid()
    while os.getppid() == parent:       # the attacker ends with its test
        with contextlib.suppress(OSError, EOFError):     # the server has ended the connection
            attack(path, fuzz)


if __name__ == "__main__":
    main(*sys.argv[1:])
