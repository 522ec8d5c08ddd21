"""Events that stop and continue simulated time: memory writes of cards, and deadlines of the drivers."""

from collections.abc import Callable, Collection
from typing import Any

from weft.driver.serve.simulated_backend import SimulatedBackend
from weft.tb.app.serve.functional import CardBackend

ROUNDS_MAX = 64      # largest number of driver calls at one simulated time
BEGIN_NS = 1_024     # programs begin just after a multiple of it, at any phase of the cards' clocks


def beginning_after(now_ns: float) -> float:
    """Return the earliest time at which programs may begin."""
    return BEGIN_NS * (now_ns // BEGIN_NS + 1) + 1


class Notices:
    """Memory writes of cards, divided into those for drivers and those for programs."""

    def __init__(self) -> None:
        self.driver = self.program = False                  # a write occurred since the last `clear`
        self.watched: Collection[str] = frozenset()         # devices whose writes to memory of programs count
        self.before: Callable[[], object] = lambda: None    # called before such a write, which programs see at once
        self.wake: Callable[[], object] = lambda: None     # called for each write

    def watch(self, memory: Any, name: str) -> None:
        """Watch all writes to a host's memory, of which attached pages belong to programs."""
        def writes(address: int, _length: int) -> None:
            if not memory.is_attached(address):
                self.driver = True
            elif name in self.watched:
                self.before()
                self.program = True
            self.wake()
        memory.dma_watchers.append(writes)

    def clear(self, watched: Collection[str] = frozenset()) -> None:
        self.driver = self.program = False
        self.watched = watched

    def __bool__(self) -> bool:
        return self.driver or self.program


class NoticedBackend(CardBackend, SimulatedBackend):
    """Back end whose time stops at a notice. Subclasses implement :meth:`_pass`, and set ``notices``."""

    notices: Notices

    def settle(self) -> None:
        for _ in range(ROUNDS_MAX):
            happened = [self.work(context) for context in self.contexts]      # a list: every driver is called
            if not any(happened):
                break

    def advance(self, until_ns: float, watched: Collection[str]) -> bool:
        due = self.driver_due_ns
        self.notices.clear(watched)
        self._pass(until_ns if due is None else min(until_ns, due))
        if self.notices.driver or due is not None and self.now_ns >= due:
            self.settle()
        return self.notices.program

    def _pass(self, until_ns: float) -> None:
        """Let time pass until ``until_ns`` or the first notice."""
        raise NotImplementedError
