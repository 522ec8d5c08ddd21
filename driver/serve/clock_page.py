"""Page of memory in which programs read the simulated time."""

import contextlib
import mmap
import os
import struct

from ..ibverbs.rings import CLOCK

_NS = struct.Struct("<Q")


class ClockPage:
    """File ``NAME.clock`` next to a host's socket."""

    def __init__(self, path):
        self.path = path
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with open(path, "x+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def show(self, now_ns):
        _NS.pack_into(self._page, CLOCK.offset_of("now_ns") // 8, now_ns)

    def close(self):
        self._page.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
