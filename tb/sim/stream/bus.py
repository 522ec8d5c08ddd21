"""Ends of the cards' AXI streams that sleep while their bus is idle.

Every bus of module ``two_cards`` is one word, ``<bus>__beat``: from the top ``tvalid``, ``tlast``, ``tuser``,
``tkeep``, ``tdata``. One read or write brings a whole beat. All ends share one callback for each rising edge of the
clock, and there is none while all of them sleep.
"""

import logging

import cocotb
from cocotb.triggers import Event, RisingEdge

DATA_BITS = 512
BEAT_BYTES = DATA_BITS // 8


class Bus:
    """Handles of one stream of module ``two_cards``, and where the parts of its beat lie.

    Parameters
    ----------
    dut
    prefix : str
        For instance ``"a_m_axis_rq"``.
    ticker : Ticker
    """

    def __init__(self, dut, prefix, ticker):
        self.ticker, self._entity, self._name = ticker, dut, prefix      # cocotbext-* take the names for their logs
        logging.getLogger(f"cocotb.{dut._name}.{prefix}").setLevel(logging.ERROR)
        self.beat, self.tdata, self.tkeep, self.tuser, self.tvalid, self.tready = (
            getattr(dut, f"{prefix}__{name}") for name in ("beat", "tdata", "tkeep", "tuser", "tvalid", "tready"))
        assert len(self.tdata) == DATA_BITS, f"{prefix} is {len(self.tdata)} bits wide"
        self.user_at = DATA_BITS + len(self.tkeep)              # counted from the right
        self.last_at = self.user_at + len(self.tuser)
        self.valid_at = self.last_at + 1

    def word(self, content, keep, last, user):
        """The beat that carries ``content``, up to 64 bytes."""
        return (int.from_bytes(content, "little") | keep << DATA_BITS | user << self.user_at
                | last << self.last_at | 1 << self.valid_at)

    def parts(self, bits):
        """``(bytes, tkeep, tlast, tuser)`` of a beat as a string of bits."""
        data = int(bits[-DATA_BITS:], 2).to_bytes(BEAT_BYTES, "little")
        keep = int(bits[-self.user_at:-DATA_BITS], 2)
        return data, keep, bits[1] == "1", int(bits[2:-self.user_at], 2)


class End:
    """What sources and sinks share: random pauses.

    Parameters
    ----------
    bus : Bus
    """

    def __init__(self, bus):
        self.bus, self.ticker = bus, bus.ticker
        self._paused, self._pauses = False, None

    def pause_by(self, pauses):
        """Hold the stream back in the cycles in which the endless generator ``pauses`` says so; None: never more."""
        self._pauses, self._paused = pauses, False
        self.ticker.wake(self._edge)      # and not to sleep again: a pause may come in any cycle

    def _draw(self):
        """Whether this cycle is a pause."""
        paused = self._paused
        if self._pauses is not None:
            self._paused = next(self._pauses)
        return paused


class Sink(End):
    """Takes the beats that a card sends; a subclass says what becomes of them."""

    def __init__(self, bus):
        super().__init__(bus)
        self._ready, self._asleep = False, Event()
        # The simulator's own string of bits: making a LogicArray of it and an int of that costs more than the rest.
        self._read = bus.beat._handle.get_signal_val_binstr
        bus.tready.value = 0
        self.ticker.wake(self._edge)
        cocotb.start_soon(self._wake_up())

    def take(self, bits):
        """A beat was transferred."""
        raise NotImplementedError

    def room(self, taking):
        """Whether there is room for another beat after this edge, at which one comes in or not."""
        raise NotImplementedError

    def idle(self):
        """Whether nothing is left to do without a new beat."""
        return True

    def gap(self):
        """No beat is offered at this edge."""

    def _edge(self):
        bits = self._read()
        valid = bits[0] == "1"
        if not valid:
            self.gap()
        taking = valid and self._ready
        ready = self.room(taking) and not self._draw()
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
    """Sends beats to a card; a subclass says which."""

    def __init__(self, bus):
        super().__init__(bus)
        self._word, self._valid = 0, False
        self._accepted = bus.tready._handle.get_signal_val_binstr
        bus.beat.value = 0

    def next(self):
        """The beat to offer from this edge on, or None."""
        raise NotImplementedError

    def idle(self):
        """Whether :meth:`next` returns None until something else happens."""
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
