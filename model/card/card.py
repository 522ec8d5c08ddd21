"""The card in time, as its driver and its line see it."""

from collections import deque

from weft.hdl import abi

from ..functional.card import FunctionalCard
from .commands import Commands
from .interrupts import Interrupts
from .pcie import Pcie
from .receive import TimedReceivePath
from .rings import TimedRings
from .second_level import SecondLevel, TimedLife
from .timing import TIMING
from .transmit import TimedTransmitPath

Ring = abi.Ring


class TimedCard(FunctionalCard):
    """:class:`FunctionalCard` with queues, latencies and widths. What it decides is the functional card's.

    Parameters
    ----------
    memory, loop, send_frame, interrupt, preset, line_gbps
        As :class:`FunctionalCard` has them.
    host : HostTiming or None
    timing : Timing
    seed : hashable
        Of the host's latencies.
    """

    rings_type, transmit_type, receive_type, life_type = TimedRings, TimedTransmitPath, TimedReceivePath, TimedLife

    def __init__(self, memory, loop, send_frame, interrupt, *, host=None, timing=TIMING, seed=0, **options):
        self.timing, self._host, self._seed, self.interrupts = timing, host, seed, None
        super().__init__(memory, loop, send_frame, interrupt, **options)

    def _reset(self):
        self.pcie = self._new_pcie()
        self._paced = {}            # client -> when it may write again
        self._posts = {}            # client -> its writes that are not on their way
        self.second_level = SecondLevel(self)
        self.commands = Commands(self)
        self.interrupts = self.interrupts or Interrupts(self)       # a reset is not for them
        super()._reset()

    def plugged(self, function):
        """Frames are sent with this function from now on."""

    def pages_go(self, frames):
        """These pages of the host's memory are about to be free."""

    def _new_pcie(self):
        return Pcie(self.loop, self.timing, self._host, self._seed)

    # ----------------------------------------------------------------------------------------- host memory

    def line_read(self, time_ns, read):
        """Read descriptors, nodes or the like: they take turns with payload, of which many reads may wait."""
        self.pcie.line(time_ns, read)

    def post(self, client, address, data, time_ns, then=lambda: None):
        """Write to memory, not before a time, behind all writes before it; ``then`` is called when the write is on its
        way. Writes of one client come no closer than the write engine takes them: the next one is asked for when the
        one before has gone."""
        queue = self._posts.setdefault(client, deque())
        queue.append((time_ns, address, data, then))
        if len(queue) == 1:
            self._post_at(client, queue)

    def _post_at(self, client, queue):
        at = max(queue[0][0], self._paced.get(client, 0.0))
        if at > self.loop.now_ns:
            self.loop.call_at(at, self._post, client, queue)
        else:
            self._post(client, queue)

    def _post(self, client, queue):
        _, address, data, then = queue[0]
        self.loop.call_at(self.pcie.write(self.loop.now_ns, len(data)), self.memory.write, address, data)
        self._paced[client] = self.pcie.written_at + self.timing.write_pace
        then()
        queue.popleft()
        if queue:
            self._post_at(client, queue)

    # ----------------------------------------------------------------------------------------------- work

    def _pump(self):
        for ring in abi.HOST_TO_CARD:
            self.rings.fetch(ring)
        while self.backlog and self.rings.room(Ring.META_REPORT):
            self.rings.put(Ring.META_REPORT, self.backlog.popleft())
        self.receive_path.go_on()
        self.commands.go_on()

    def descriptors(self, ring):
        """Descriptors of a ring came."""
        if ring is Ring.COMMAND:
            self.commands.go_on()
        elif self.enabled:
            self.transmit_path.start()

    def _link(self, word):
        super()._link(word)
        life = self._life(word.qpn, word.generation)
        if life:
            self.second_level.look(life)
