"""Drive and receive Amaranth streams with random pauses, checking the stream rules on the way."""

import random
from collections import deque

import cocotb
from cocotb.triggers import Event, RisingEdge


def _member(dut, prefix, name):
    return getattr(dut, f"{prefix}__{name}", None)


class StreamSource:
    """Offers values to the stream input ``prefix`` of ``dut``.

    Parameters
    ----------
    pause : float
        Chance per cycle of holding back the next value; may be changed at any time. Once offered, a value stays.
    rng : random.Random, optional
        Source of the pauses, and of the nonsense on the payload while ``valid`` is low.

    Attributes
    ----------
    sent : int
        Values transferred.
    """

    def __init__(self, dut, prefix, clk, pause=0.0, rng=None):
        self.clk, self.pause, self.sent = clk, pause, 0
        self._payload, self._valid, self._ready = (_member(dut, prefix, n) for n in ("payload", "valid", "ready"))
        self._width = len(self._payload)
        self._rng = rng or random.Random(prefix)
        self._queue, self._queued, self._moved = deque(), Event(), Event()
        self._valid.value = 0
        cocotb.start_soon(self._run())

    def send_nowait(self, value):
        """Queue a value: an integer, or bytes with byte 0 in the low bits."""
        self._queue.append(int.from_bytes(value, "little") if isinstance(value, (bytes, bytearray)) else int(value))
        self._queued.set()

    async def send(self, value):
        """Queue a value and wait until it and all before it have been transferred."""
        self.send_nowait(value)
        await self.idle()

    async def idle(self):
        """Wait until everything queued has been transferred."""
        while self._queue:
            self._moved.clear()
            await self._moved.wait()

    async def _run(self):
        edge = RisingEdge(self.clk)
        while True:
            if not self._queue:
                self._valid.value = 0
                self._payload.value = self._rng.getrandbits(self._width)
                self._queued.clear()
                await self._queued.wait()
                # Queued between two edges or at one: offered from the next edge on either way.
                await edge
                continue
            if self.pause and self._rng.random() < self.pause:
                self._valid.value = 0
                self._payload.value = self._rng.getrandbits(self._width)
                await edge
                continue
            self._payload.value = self._queue[0]
            self._valid.value = 1
            await edge
            while self._ready is not None and not int(self._ready.value):
                await edge
            self._queue.popleft()
            self.sent += 1
            self._moved.set()


class StreamSink:
    """Receives values from the stream output ``prefix`` of ``dut``.

    Fails the test when a value offered is withdrawn or changed before it was taken.

    Parameters
    ----------
    pause : float
        Chance per cycle of ``ready`` being low; may be changed at any time.
    rng : random.Random, optional
        Source of the pauses.

    Attributes
    ----------
    received : int
        Values transferred.
    """

    def __init__(self, dut, prefix, clk, pause=0.0, rng=None):
        self.clk, self.pause, self.received = clk, pause, 0
        self._prefix = prefix
        self._payload, self._valid, self._ready = (_member(dut, prefix, n) for n in ("payload", "valid", "ready"))
        self._rng = rng or random.Random(prefix)
        self._queue, self._arrived = deque(), Event()
        cocotb.start_soon(self._run())

    def __len__(self):
        return len(self._queue)

    async def recv(self):
        """Wait for the next value."""
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        return self._queue.popleft()

    def recv_nowait(self):
        """The next value, or None."""
        return self._queue.popleft() if self._queue else None

    async def recv_many(self, count):
        """Wait for ``count`` values."""
        return [await self.recv() for _ in range(count)]

    async def _run(self):
        edge = RisingEdge(self.clk)
        offered, was_ready = None, None
        while True:
            ready = self._ready is None or not (self.pause and self._rng.random() < self.pause)
            if ready != was_ready and self._ready is not None:
                self._ready.value = int(ready)
                was_ready = ready
            await edge
            if int(self._valid.value):
                value = int(self._payload.value)
                assert offered is None or value == offered, f"{self._prefix}: payload changed before it was taken"
                offered = None if ready else value
                if ready:
                    self._queue.append(value)
                    self.received += 1
                    self._arrived.set()
            else:
                assert offered is None, f"{self._prefix}: valid fell before the payload was taken"
