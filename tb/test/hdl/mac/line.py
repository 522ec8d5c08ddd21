"""Model of CMAC at its AXI streams: a 100 Gb/s MAC with a separate clock, paced by the line."""

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hdl.part.layouts import BEAT_BYTES

LINE_BYTES_PER_NS = 12.5
OVERHEAD_BYTES = 24       # FCS, preamble, gap
FIFO_BYTES = 1024         # beats that the MAC accepts ahead of the line


def beats_of(frame):
    """Return ``(data, keep, last)`` of each beat."""
    for at in range(0, len(frame), BEAT_BYTES):
        part = frame[at:at + BEAT_BYTES]
        yield int.from_bytes(part, "little"), (1 << len(part)) - 1, int(at + BEAT_BYTES >= len(frame))


class LineSink:
    """Accepts frames at the speed of the line; ``tready`` falls when the MAC is ahead of it.

    Fails when a frame has a gap in a cycle in which the MAC is ready: CMAC would send a corrupt frame.

    Attributes
    ----------
    frames : list
        ``(bytes, error)``.
    times : list
        Cycle of the last beat of each frame.
    """

    def __init__(self, dut, prefix, clk, period_ns, *, pause=0.0, rng=None):
        self.frames, self.times, self.cycle = [], [], 0
        self._dut, self._prefix, self._clk = dut, prefix, clk
        self._per_cycle, self._pause, self._rng = LINE_BYTES_PER_NS * period_ns, pause, rng
        cocotb.start_soon(self._run())

    async def _run(self):
        valid, ready, data, keep, last, user = (
            getattr(self._dut, f"{self._prefix}__{name}") for name in ("tvalid", "tready", "tdata", "tkeep", "tlast",
                                                                      "tuser"))
        ahead, frame, inside, is_ready = 0.0, b"", False, 0
        edge = RisingEdge(self._clk)
        while True:
            wanted = int(ahead < FIFO_BYTES and not (self._pause and self._rng.random() < self._pause))
            if wanted != is_ready:
                ready.value = is_ready = wanted
            await edge
            self.cycle += 1
            if int(self._dut.mac_rst.value):
                frame, inside = b"", False
                continue
            ahead = max(0.0, ahead - self._per_cycle)
            if not is_ready:
                continue
            if not int(valid.value):
                assert not inside, f"{self._prefix}: a gap inside a frame, after {len(frame)} bytes"
                continue
            count = int(keep.value).bit_count()
            frame += int(data.value).to_bytes(BEAT_BYTES, "little")[:count]
            ahead += count
            inside = not int(last.value)
            if not inside:
                ahead += OVERHEAD_BYTES
                self.frames.append((frame, int(user.value) & 1))
                self.times.append(self.cycle)
                frame = b""


class LineSource:
    """Delivers frames no faster than the line, and ignores back pressure.

    It is at most one beat late, and catches up.
    """

    def __init__(self, dut, prefix, clk, period_ns):
        self._dut, self._prefix, self._clk, self._per_cycle = dut, prefix, clk, LINE_BYTES_PER_NS * period_ns

    async def send(self, frames):
        """Deliver a list of ``(bytes, error)``."""
        valid, data, keep, last, user = (getattr(self._dut, f"{self._prefix}__{name}")
                                         for name in ("tvalid", "tdata", "tkeep", "tlast", "tuser"))
        edge, credit = RisingEdge(self._clk), 0.0
        for frame, error in frames:
            for beat, enabled, end in beats_of(frame):
                while credit < 0:
                    valid.value = 0
                    await edge
                    credit += self._per_cycle
                credit -= enabled.bit_count() + end * OVERHEAD_BYTES
                data.value, keep.value, last.value, user.value, valid.value = beat, enabled, end, error & end, 1
                await edge
                credit = min(credit + self._per_cycle, BEAT_BYTES)
        valid.value = 0
        await ClockCycles(self._clk, 1)
