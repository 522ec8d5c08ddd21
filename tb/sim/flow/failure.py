"""Failures that end a command with a sentence for a person instead of a traceback."""

import os
import signal
import sys

from weft.tb.sim.flow.sources import ROOT

INTERRUPTED = 130     # exit status of a command that SIGINT ended


class Failure(Exception):
    """Failure that a person can mend. The message states the fault and the remedy."""


def stop(more=""):
    """End this process with a sentence because of SIGINT, without waiting for its threads; its children end, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(f"weft: stopped{more}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(INTERRUPTED)


def how_to_install(extra):
    """Return the command or the sentence that brings the packages of an extra of this project."""
    if (ROOT / "pyproject.toml").exists():
        return f"install it with: .venv/bin/pip install -c constraints.txt -e '.[{extra}]'"
    return f"install Weft again from where it came, with its extra [{extra}]"
