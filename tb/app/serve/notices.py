"""What lets simulated time go on and stop: writes of cards into memory, and the drivers' own deadlines."""

from weft.tb.app.serve.functional import dues_of

PAGE = 4096
ROUNDS_MAX = 64      # of the drivers, one after the other without time
BEGIN_NS = 1_024     # programs begin at a multiple of it, wherever clocks of cards stand then


def settle(contexts):
    """Let drivers do what there is to do, now."""
    for _ in range(ROUNDS_MAX):
        happened = [context.progress() for context in contexts]      # of all
        if not any(happened):
            break


def driver_due_ns(contexts):
    """When a driver wants to make progress by itself, or None."""
    dues = [due for context in contexts for due in dues_of(context.engine)]
    return min((due for due in dues if due is not None), default=None)


def beginning_after(now_ns):
    """When programs may begin, as soon as that can be."""
    return BEGIN_NS * (now_ns // BEGIN_NS + 1) + 1


class Notices:
    """Writes of cards into memory: which are for drivers, and which are for programs.

    Attributes
    ----------
    driver, program : bool
        There was one since it was set back.
    watched : set of str
        Devices whose programs' memory is looked at.
    before : callable()
        Called before one of those is done: the program may see it at once.
    heard : callable()
        Called for each write.
    """

    def __init__(self):
        self.driver = self.program = False
        self.watched, self.before, self.heard = frozenset(), lambda: None, lambda: None

    def watch(self, memory, name, pages):
        """Look at all writes to a host's memory, of which ``pages`` are those of programs."""
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
    """Mixed into a device: knows the pages that programs share with it.

    Attributes
    ----------
    program_pages : set of int
        Numbers of physical pages.
    """

    def map(self, fd, offset, size):
        buffer = super().map(fd, offset, size)
        self.program_pages.update(self._numbers(buffer))
        return buffer

    def free(self, buffer):
        self.program_pages.difference_update(self._numbers(buffer))
        super().free(buffer)

    @staticmethod
    def _numbers(buffer):
        return buffer.frames
