"""Interrupts of child processes that tests start."""

import signal


def watch_interrupts():
    """Restore the default action of SIGINT in a child before it begins (``preexec_fn``).

    A shell starts background jobs with SIGINT ignored, and children inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
