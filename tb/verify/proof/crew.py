"""Worker processes that end together with their parent process, including the commands that they started."""

import _thread
import contextlib
import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor


@contextlib.contextmanager
def crew(count):
    """Yield a pool of ``count`` processes, which end at once on an exception in the block or when this process ends."""
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
    """End this worker when the other end of ``lifeline`` is closed; its commands then end, too, see ``guard.py``."""
    os.close(held)

    def wait():
        while os.read(lifeline, 1):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    _thread.start_new_thread(wait, ())
