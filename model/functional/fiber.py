"""Applications of simulated hosts that take turns in one thread.

A change of threads costs the machine more than most of what an application does in its turn: the other thread runs on
another core, whose caches know nothing. A fiber changes stacks only. Needs greenlet.
"""

from greenlet import getcurrent, greenlet

from .host import App

_left = []      # an application that never ended stays where it was, as in a thread of its own


class Fiber(App):
    """An :class:`~weft.model.functional.host.App` in the thread of the event loop: the same at the same times.

    For the one program of a host: the locks of the driver tell threads apart, not fibers. For the same reason it does
    not run asyncio.

    Raises
    ------
    ValueError
        If the host has a program already.
    """

    def __init__(self, device, function):
        if device._apps:
            raise ValueError("several programs of a host need threads of their own")
        super().__init__(device, function)

    def _begin(self):
        self._fiber = greenlet(self._run)
        _left.append(self)

    def here(self):
        return getcurrent() is self._fiber

    def resume(self):
        self._fiber.parent = getcurrent()       # who goes on when it waits, and when it ends
        self._fiber.switch()

    def _rest(self):
        self._fiber.parent.switch()

    def _run(self):
        super()._run()
        _left.remove(self)
