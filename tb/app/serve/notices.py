"""Events that stop and continue simulated time: memory writes of cards, and deadlines of the drivers."""

from weft.tb.app.serve.functional import dues_of

PAGE = 4096
ROUNDS_MAX = 64      # largest number of driver calls at one simulated time
BEGIN_NS = 1_024     # programs begin just after a multiple of it, at any phase of the cards' clocks


def settle(contexts):
    """Let drivers do all work that is possible at this time."""
    for _ in range(ROUNDS_MAX):
        happened = [context.progress() for context in contexts]      # a list: every driver is called
        if not any(happened):
            break


def driver_due_ns(contexts):
    """Return the earliest deadline of the drivers, or None."""
    dues = [due for context in contexts for due in dues_of(context.engine)]
    return min((due for due in dues if due is not None), default=None)


def beginning_after(now_ns):
    """Return the earliest time at which programs may begin."""
    return BEGIN_NS * (now_ns // BEGIN_NS + 1) + 1


class Notices:
    """Memory writes of cards, divided into those for drivers and those for programs.

    Attributes
    ----------
    driver, program : bool
        A write occurred since the last :meth:`clear`.
    watched : set of str
        Devices whose writes to memory of programs count.
    before : callable()
        Called before such a write is done, since the program may see it at once.
    heard : callable()
        Called for each write.
    """

    def __init__(self):
        self.driver = self.program = False
        self.watched, self.before, self.heard = frozenset(), lambda: None, lambda: None

    def watch(self, memory, name, pages):
        """Watch all writes to a host's memory, of which ``pages`` belong to programs."""
        def writes(address, _length):
            if address // PAGE not in pages:
                self.driver = True
            elif name in self.watched:
                self.before()
                self.program = True
            self.heard()
        memory.dma_watchers.append(writes)

    def clear(self, watched=frozenset()):
        self.driver = self.program = False
        self.watched = watched

    def __bool__(self):
        return self.driver or self.program


class Mapping:
    """Mixin for devices that records the pages of programs.

    Attributes
    ----------
    program_pages : set of int
        Numbers of physical pages.
    """

    def attach(self, *memory):
        buffer = super().attach(*memory)
        self.program_pages.update(self._numbers(buffer))
        return buffer

    def detach(self, buffer):
        self.program_pages.difference_update(self._numbers(buffer))
        super().detach(buffer)

    @staticmethod
    def _numbers(buffer):
        return buffer.frames
