"""Source and sink of Amaranth streams, with random pauses and checks of the stream rules."""

import random
import weakref
from collections import deque

import cocotb
from cocotb.triggers import Event, RisingEdge
from cocotb.utils import get_sim_time

_tickers = weakref.WeakKeyDictionary()


class Ticker:
    """Caller of registered functions at each rising edge of a clock while they are awake.

    A separate task for each function would cost several times as much. There is no callback while all of them sleep.
    During the calls, ``now_ps`` is the time of the edge.
    """

    def __init__(self, clk):
        self.clk, self.now_ps = clk, 0
        self._awake, self._woken = {}, Event()
        self._task = cocotb.start_soon(self._run())

    @classmethod
    def of(cls, clk):
        """Return the ticker of a clock in the running test."""
        ticker = _tickers.get(clk)
        if ticker is None or ticker._task.done():
            ticker = _tickers[clk] = cls(clk)
        return ticker

    def wake(self, edge):
        """Call ``edge`` from the next rising edge on, but not at the one that is being handled."""
        if edge not in self._awake:
            self._awake[edge] = None
            self._woken.set()

    def sleep(self, edge):
        """Stop calling ``edge``."""
        del self._awake[edge]

    async def _run(self):
        rising = RisingEdge(self.clk)
        while True:
            if not self._awake:
                self._woken.clear()
                await self._woken.wait()
            await rising
            self.now_ps = get_sim_time("ps")
            for edge in tuple(self._awake):
                edge()


class _End:
    """Base class of source and sink: the members of the stream, and the calls at clock edges.

    Signals are read as the simulator's strings of bits: a LogicArray converted to an int costs more than everything
    else here.
    """

    def __init__(self, dut, prefix, clk, pause, rng):
        self.clk, self.pause = clk, pause
        self._prefix, self._ticker = prefix, Ticker.of(clk)
        self._payload, self._valid, self._ready = (
            getattr(dut, f"{prefix}__{name}", None) for name in ("payload", "valid", "ready"))
        self._rng = rng or random.Random(prefix)
        self._queue = deque()
        self._woken_ps = None

    def _wake(self):
        """Enable the calls of ``_edge`` from the next edge on, but not at the current one."""
        self._woken_ps = get_sim_time("ps")
        self._ticker.wake(self._tick)

    def _tick(self):
        if self._woken_ps is not None:
            if self._woken_ps == self._ticker.now_ps:
                return
            self._woken_ps = None
        self._edge()

    def _is(self, read, name):
        """Return whether a bit is 1; raise ``ValueError`` if it is unknown."""
        bits = read()
        if bits not in ("0", "1"):
            raise ValueError(f"{self._prefix}: {name} is {bits}")
        return bits == "1"

    def _paused(self):
        return self.pause and self._rng.random() < self.pause


class StreamSource(_End):
    """Source of values for the stream input ``prefix`` of ``dut``.

    In each cycle it holds the next value back with probability ``pause``, which may be changed at any time. An offered
    value stays; while ``valid`` is low, the payload is random.

    Attributes
    ----------
    sent : int
        Values transferred.
    """

    def __init__(self, dut, prefix, clk, pause=0.0, rng=None):
        super().__init__(dut, prefix, clk, pause, rng)
        self.sent, self._moved = 0, Event()
        self._width = len(self._payload)
        self._taken = None if self._ready is None else self._ready._handle.get_signal_val_binstr
        self._offers = self._awake = False
        self._withdraw()

    def send_nowait(self, value):
        """Queue a value: an integer, or bytes with byte 0 in the low bits."""
        self._queue.append(int.from_bytes(value, "little") if isinstance(value, (bytes, bytearray)) else int(value))
        if not self._awake:    # whether queued between two edges or at one, it is offered from the next edge on
            self._awake = True
            self._wake()

    async def send(self, value):
        """Queue a value and wait until it and all earlier ones have been transferred."""
        self.send_nowait(value)
        await self.idle()

    async def idle(self):
        """Wait until everything queued has been transferred."""
        while self._queue:
            self._moved.clear()
            await self._moved.wait()

    def _withdraw(self):
        self._valid.value = 0
        self._payload.value = self._rng.getrandbits(self._width)

    def _edge(self):
        offered = self._offers
        if offered:
            if self._taken is not None and not self._is(self._taken, "ready"):
                return
            self._queue.popleft()
            self.sent += 1
            self._moved.set()
        if not self._queue:
            self._awake = False
            self._ticker.sleep(self._tick)
        self._offers = self._awake and not self._paused()
        if not self._offers:
            self._withdraw()
            return
        self._payload.value = self._queue[0]
        if not offered:
            self._valid.value = 1


class StreamSink(_End):
    """Sink of values from the stream output ``prefix`` of ``dut``.

    ``ready`` is low with probability ``pause`` per cycle, which may be changed at any time. Fails the test if an
    offered value is withdrawn or changed before it is taken.

    Attributes
    ----------
    received : int
        Values transferred.
    """

    def __init__(self, dut, prefix, clk, pause=0.0, rng=None):
        super().__init__(dut, prefix, clk, pause, rng)
        self.received, self._arrived = 0, Event()
        self._offered = self._takes = None
        self._is_valid, self._value = (part._handle.get_signal_val_binstr for part in (self._valid, self._payload))
        self._draw()
        self._wake()

    def __len__(self):
        return len(self._queue)

    async def recv(self):
        """Wait for the next value and return it."""
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        return self._queue.popleft()

    def recv_nowait(self):
        """Return the next value, or None."""
        return self._queue.popleft() if self._queue else None

    async def recv_many(self, count):
        """Wait for ``count`` values and return them."""
        return [await self.recv() for _ in range(count)]

    def _draw(self):
        """Decide whether the next value is taken, and drive ``ready``."""
        takes = self._ready is None or not self._paused()
        if takes != self._takes and self._ready is not None:
            self._ready.value = int(takes)
        self._takes = takes

    def _edge(self):
        if self._is(self._is_valid, "valid"):
            bits = self._value()
            assert self._offered in (None, bits), f"{self._prefix}: payload changed before it was taken"
            self._offered = None if self._takes else bits
            if self._takes:
                self._queue.append(int(bits, 2))
                self.received += 1
                self._arrived.set()
        else:
            assert self._offered is None, f"{self._prefix}: valid fell before the payload was taken"
        self._draw()
