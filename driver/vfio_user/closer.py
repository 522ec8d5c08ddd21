"""Closing of descriptors of a client that are neither shared memory nor eventfds.

The client chooses the file, and closing it may wait without end: for a file system in user space, or a socket that
lingers. A thread does it, and a limit of what waits for it ends the service of the client.
"""

import os
import queue
import threading

WAITING_MAX = 64


class Closer:
    """Closes descriptors in a thread, which ends when there are none."""

    def __init__(self) -> None:
        self._files: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._lock, self._waiting = threading.Lock(), 0

    @property
    def full(self) -> bool:
        """True if no further descriptors may come until some are closed."""
        return self._waiting >= WAITING_MAX

    @property
    def waiting(self) -> int:
        """Number of descriptors that are not closed yet."""
        return self._waiting

    def close(self, files: list[int]) -> None:
        """Close descriptors soon, and clear their list."""
        while files:
            self._files.put(files.pop())
            with self._lock:
                self._waiting += 1
                first = self._waiting == 1
            if first:
                threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            os.close(self._files.get())
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    return
