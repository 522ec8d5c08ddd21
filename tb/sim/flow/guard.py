"""Guard of a command, which ends the command when the requesting process ends for any reason.

:mod:`weft.tb.sim.flow.process` starts this script as the leader of a new session: ``guard.py LIFELINE COMMAND...``.
``LIFELINE`` is a file descriptor whose other end only the requesting process holds. When that process ends, even by
SIGKILL, the descriptor reaches end of file, and the guard kills everything that the command has started.
"""

import _thread
import os
import signal
import sys

SIGNALLED = 128  # plus the signal number: exit status of a command that a signal ended, as in a shell


def watch(lifeline):
    """Kill the whole process group, including this process, when the other end of ``lifeline`` is closed."""
    while os.read(lifeline, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def main():
    """Run the command and exit with its status."""
    lifeline, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(lifeline, False)
    _thread.start_new_thread(watch, (lifeline,))
    status = os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp(command[0], command, os.environ), 0)[1])
    os._exit(status if status >= 0 else SIGNALLED - status)


if __name__ == "__main__":
    main()
