"""Runs a command that ends with the process that wanted it, however that one ends.

Started by :mod:`weft.tb.sim.flow.process` as the leader of a session of its own: ``guard.py LIFELINE COMMAND...``.
``LIFELINE`` is a descriptor whose other end only the wanting process holds. When that process is gone, by a signal
that nobody can catch too, the lifeline ends, and with it everything the command has started.
"""

import _thread
import os
import signal
import sys

SIGNALLED = 128  # and the signal's number: the exit status of a command that a signal ended, as in a shell


def watch(lifeline):
    """Kill the whole group, this process too, when the other end of ``lifeline`` is closed."""
    while os.read(lifeline, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def main():
    """Run the command; its exit status."""
    lifeline, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(lifeline, False)
    _thread.start_new_thread(watch, (lifeline,))
    status = os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp(command[0], command, os.environ), 0)[1])
    os._exit(status if status >= 0 else SIGNALLED - status)


if __name__ == "__main__":
    main()
