"""Worker processes that end with who wanted them, and what they started with them."""

import _thread
import contextlib
import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor


@contextlib.contextmanager
def crew(count):
    """A pool of ``count`` processes; when the block is left by an exception, or this process ends, they end at once."""
    lifeline, held = os.pipe()
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("fork"), _watch, (lifeline, held))
    try:
        yield pool
    except BaseException:
        os.close(held)
        held = None
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        os.close(lifeline)
        if held is not None:
            os.close(held)


def _watch(lifeline, held):
    """End this worker when nobody holds the other end of ``lifeline``: then its commands end too, see ``guard.py``."""
    os.close(held)

    def wait():
        while os.read(lifeline, 1):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    _thread.start_new_thread(wait, ())
