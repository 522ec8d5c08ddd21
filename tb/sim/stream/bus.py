"""Sources and sinks on the cards' AXI streams that sleep while their bus is idle.

Every bus of module ``two_cards`` is one word, ``<bus>__beat``: from the top ``tvalid``, ``tlast``, ``tuser``,
``tkeep``, ``tdata``. One read or write transfers a whole beat. All sources and sinks share one callback per rising
clock edge; there is no callback while all of them sleep.
"""

import logging

import cocotb
from cocotb.triggers import Event, RisingEdge

DATA_BITS = 512
BEAT_BYTES = DATA_BITS // 8


class Bus:
    """Handles of one stream of module ``two_cards``, such as ``a_m_axis_rq``, and positions of its beat's fields."""

    def __init__(self, dut, prefix, ticker):
        self.ticker, self._entity, self._name = ticker, dut, prefix      # cocotbext-* use the names in their logs
        logging.getLogger(f"cocotb.{dut._name}.{prefix}").setLevel(logging.ERROR)
        self.beat, self.tdata, self.tkeep, self.tuser, self.tvalid, self.tready = (
            getattr(dut, f"{prefix}__{name}") for name in ("beat", "tdata", "tkeep", "tuser", "tvalid", "tready"))
        assert len(self.tdata) == DATA_BITS, f"{prefix} is {len(self.tdata)} bits wide"
        self.user_at = DATA_BITS + len(self.tkeep)              # bit position, from the least significant bit
        self.last_at = self.user_at + len(self.tuser)
        self.valid_at = self.last_at + 1

    def word(self, content, keep, last, user):
        """Return the beat that carries ``content``, up to 64 bytes."""
        return (int.from_bytes(content, "little") | keep << DATA_BITS | user << self.user_at
                | last << self.last_at | 1 << self.valid_at)

    def parts(self, bits):
        """Return ``(bytes, tkeep, tlast, tuser)`` of a beat given as a string of bits."""
        data = int(bits[-DATA_BITS:], 2).to_bytes(BEAT_BYTES, "little")
        keep = int(bits[-self.user_at:-DATA_BITS], 2)
        return data, keep, bits[1] == "1", int(bits[2:-self.user_at], 2)


class End:
    """Base class of sources and sinks: random pauses."""

    def __init__(self, bus):
        self.bus, self.ticker = bus, bus.ticker
        self._paused, self._pauses = False, None

    def pause_by(self, pauses):
        """Pause the stream in each cycle in which the infinite generator ``pauses`` yields true; None: no pauses."""
        self._pauses, self._paused = pauses, False
        self.ticker.wake(self._edge)      # and never sleep again: a pause may come in any cycle

    def _draw(self):
        paused = self._paused
        if self._pauses is not None:
            self._paused = next(self._pauses)
        return paused


class Sink(End):
    """Receiver of the beats that a card sends; a subclass processes them."""

    def __init__(self, bus):
        super().__init__(bus)
        self._ready, self._asleep = False, Event()
        # Read the simulator's string of bits: a LogicArray converted to an int costs more than everything else here.
        self._read = bus.beat._handle.get_signal_val_binstr
        bus.tready.value = 0
        self.ticker.wake(self._edge)
        cocotb.start_soon(self._wake_up())

    def take(self, bits):
        """Process a transferred beat."""
        raise NotImplementedError

    def space(self, taking):
        """Return whether another beat fits after this edge; ``taking``: a beat is transferred at this edge."""
        raise NotImplementedError

    def idle(self):
        """Return whether no work is left until a new beat comes."""
        return True

    def gap(self):
        """Handle an edge at which no beat is offered."""

    def _edge(self):
        bits = self._read()
        valid = bits[0] == "1"
        if not valid:
            self.gap()
        taking = valid and self._ready
        ready = self.space(taking) and not self._draw()
        if taking:
            self.take(bits)
        if ready != self._ready:
            self._ready = ready
            self.bus.tready.value = int(ready)
        if ready and not valid and self._pauses is None and self.idle():
            self.ticker.sleep(self._edge)
            self._asleep.set()

    async def _wake_up(self):
        rising = RisingEdge(self.bus.tvalid)
        while True:
            await self._asleep.wait()
            self._asleep.clear()
            await rising
            self.ticker.wake(self._edge)


class Source(End):
    """Sender of beats to a card; a subclass chooses them."""

    def __init__(self, bus):
        super().__init__(bus)
        self._word, self._valid = 0, False
        self._accepted = bus.tready._handle.get_signal_val_binstr
        bus.beat.value = 0

    def next(self):
        """Return the beat to offer from this edge on, or None."""
        raise NotImplementedError

    def idle(self):
        """Return whether :meth:`next` returns None until another event changes that."""
        raise NotImplementedError

    def _edge(self):
        paused = self._draw()
        if self._valid and self._accepted() != "1":
            return
        word = None if paused else self.next()
        if word is not None:
            self._word, self._valid = word, True
            self.bus.beat.value = word
            return
        if self._valid:
            self._valid = False
            self.bus.beat.value = self._word ^ 1 << self.bus.valid_at
        if self._pauses is None and self.idle():
            self.ticker.sleep(self._edge)
