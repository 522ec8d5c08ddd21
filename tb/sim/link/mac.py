"""100 Gb/s MAC of a card, on the MAC's AXI stream.

Rates, rules and times are those of cocotbext-eth's models. Their loops over single bytes would take 30 ms of
wall-clock time for a large frame, and a timer for each beat is expensive too. Here the times of beats are computed,
and checked at rising clock edges.
"""

from collections import deque

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from weft.tb.sim.stream.bus import BEAT_BYTES, Sink, Source

BITS_PER_SECOND = 100e9
PREAMBLE_BYTES, FCS_BYTES, GAP_BYTES = 8, 4, 12
FIFO_BEATS = 4
FULL_KEEP = (1 << BEAT_BYTES) - 1


def wire_ps(count):
    """Return the picoseconds that ``count`` bytes take on the wire."""
    return count * 8 * 10**12 // int(BITS_PER_SECOND)


class MacTx(Sink):
    """MAC transmitter of a card: passes each frame to ``deliver`` when its last byte is on the wire.

    Fails the test if a frame is not sent back to back, since a real MAC would spoil it.

    Attributes
    ----------
    frames, spoiled : int
        Frames sent, and frames aborted by the card (``tuser`` bit 0 in the last beat), which are not delivered.
    idle_bytes : callable() -> int, optional
        Returns bytes of idle line after each frame, besides the gap, as of a paused MAC. Never inside a frame.
    """

    def __init__(self, bus, deliver):
        super().__init__(bus)
        self.frames, self.spoiled, self.idle_bytes = 0, 0, None
        self._deliver, self._down, self._end = deliver, False, None
        self._clear()

    def _clear(self):
        self._beats, self._frame = deque(), None
        self._foreseen = False   # the end of the frame in transmission is known
        self._due_ps = 0         # time at which the next beat is needed, or the next frame may begin
        self._finished = None    # (frame, spoiled) whose last beat is on the wire
        self._inside = False     # inside a frame of the card

    def stop(self):
        """Enter reset: all frames here, even those on the wire, are lost, and so are beats until :meth:`go_on`."""
        self._down = True
        if self._end is not None:
            self._end.cancel()
        self._clear()

    def go_on(self):
        """Leave reset."""
        self._down = False

    def gap(self):
        assert self._down or not (self._inside and self._ready), "the card left a gap inside a frame"

    def take(self, bits):
        if self._down:
            return
        content, keep, last, user = self.bus.parts(bits)
        self._inside = not last
        count = keep.bit_length()
        assert keep == (1 << count) - 1, f"tkeep {keep:#x} has a gap"
        assert last or count == BEAT_BYTES, "a beat inside a frame is not full"
        self._beats.append((content[:count], last, bool(user & 1)))
        if self._frame is not None and not self._foreseen:
            self._foresee()
        elif self._frame is None and self._finished is None and self._due_ps <= self.ticker.now_ps:
            self._begin(self.ticker.now_ps)

    def space(self, taking):
        self._advance(self.ticker.now_ps)
        return not self._down and len(self._beats) + taking < FIFO_BEATS

    def idle(self):
        return not self._beats and self._frame is None

    def _advance(self, now_ps):
        """Transfer the beats that the wire has taken until now."""
        while self._due_ps <= now_ps and self._finished is None:
            if self._frame is not None:
                assert self._beats, "underflow: the card did not send a frame back to back"
                self._pop(self._due_ps)
            elif self._beats:
                self._begin(self._due_ps)
            else:
                return

    def _begin(self, at_ps):
        self._frame = bytearray()
        self._due_ps = at_ps + wire_ps(PREAMBLE_BYTES)
        self._foreseen = False
        self._foresee()
        self._pop(self._due_ps)

    def _foresee(self):
        """Schedule the end of the frame in transmission if its last beat is in the FIFO."""
        at_ps = self._due_ps
        for content, last, _ in self._beats:
            at_ps += wire_ps(len(content))
            if last:
                self._foreseen = True
                self._end = cocotb.start_soon(self._finish(at_ps))
                return

    def _pop(self, at_ps):
        content, last, spoiled = self._beats.popleft()
        self._frame += content
        self._due_ps = at_ps + wire_ps(len(content))
        if last:
            self._finished, self._frame = (bytes(self._frame), spoiled), None

    async def _finish(self, at_ps):
        await Timer(at_ps - round(get_sim_time("ps")), "ps")
        self._advance(at_ps)
        frame, spoiled = self._finished
        self.frames += 1
        if spoiled:
            self.spoiled += 1
        else:
            self._deliver(frame)
        idle = self.idle_bytes() if self.idle_bytes else 0
        self._finished, self._due_ps = None, at_ps + wire_ps(FCS_BYTES + GAP_BYTES + idle)


class MacRx(Source):
    """MAC receiver of a card: :meth:`receive` queues a frame, which is passed to the card at line rate.

    Each beat is offered at the first clock edge after its time.

    Attributes
    ----------
    waiting : int
        Frames queued or in transmission.
    """

    def __init__(self, bus):
        super().__init__(bus)
        self._down, self._bad, self._at_ps = False, False, 0
        self._free_ps = 0                      # time from which the line is free
        self._clear()

    def _clear(self):
        self._frames, self._chunks, self.waiting = deque(), deque(), 0
        self._end_ps = None                    # end time of a frame whose beats were all sent

    def stop(self):
        """Enter reset: all frames here are lost, and so are those received until :meth:`go_on`."""
        self._down = True
        self._clear()

    def go_on(self):
        """Leave reset."""
        self._down = False

    def receive(self, frame, bad=False):
        """Queue a frame; ``bad`` marks a frame with a wrong FCS."""
        if self._down:
            return
        self.waiting += 1
        self._frames.append((frame, bad, round(get_sim_time("ps"))))
        self.ticker.wake(self._edge)

    def next(self):
        now = self.ticker.now_ps
        if self._end_ps is not None and self._end_ps <= now:
            self.waiting, self._end_ps = self.waiting - 1, None
        if not self._chunks and self._end_ps is None and self._frames:
            return self._begin(now)
        return self._chunk() if self._chunks and self._at_ps <= now else None

    def idle(self):
        return not self.waiting

    def _begin(self, now):
        frame, self._bad, queued_ps = self._frames[0]
        self._at_ps = max(self._free_ps, queued_ps) + wire_ps(PREAMBLE_BYTES)
        if self._at_ps >= now:
            return None
        self._frames.popleft()
        self._chunks.extend(frame[at:at + BEAT_BYTES] for at in range(0, len(frame), BEAT_BYTES))
        return self._chunk()

    def _chunk(self):
        chunk = self._chunks.popleft()
        self._at_ps += wire_ps(len(chunk))
        last = not self._chunks
        if last:
            self._end_ps, self._free_ps = self._at_ps, self._at_ps + wire_ps(FCS_BYTES + GAP_BYTES)
        keep = FULL_KEEP if len(chunk) == BEAT_BYTES else (1 << len(chunk)) - 1
        return self.bus.word(chunk, keep, last, int(self._bad and last))
