"""The 100 Gb/s MAC of a card, at its AXI stream.

The rates and rules are those of cocotbext-eth's models; its loops over single bytes are replaced, because they
take 30 ms of wall clock per large frame.
"""

import logging

from cocotb.triggers import Timer
from cocotb.utils import get_sim_steps
from cocotbext.eth.eth_mac import AxiStreamBus, AxiStreamTransaction, EthMacRx, EthMacTx

BITS_PER_SECOND = 100e9
PREAMBLE_BYTES, FCS_BYTES, GAP_BYTES = 8, 4, 12
BEAT_BYTES = 64


def _wire_time(count):
    return Timer(count * get_sim_steps(1, "sec") * 8 // int(BITS_PER_SECOND), "step")


class MacTx(EthMacTx):
    """What the card sends: each frame is handed to ``deliver`` when its last byte is on the wire.

    Fails the test when a frame does not come back to back, as a real MAC would spoil it.

    Attributes
    ----------
    frames, spoiled : int
        Frames sent, and frames the card gave up (``tuser`` bit 0 in the last beat), which nobody gets.
    idle_bytes : callable() -> int, optional
        Bytes of idle line after each frame, besides the gap: a MAC that was told to pause. Never inside a frame.
    """

    def __init__(self, dut, prefix, clk, deliver):
        self._deliver, self.frames, self.spoiled, self.idle_bytes = deliver, 0, 0, None
        logging.getLogger(f"cocotb.{dut._name}.{prefix}").setLevel(logging.ERROR)
        bus = AxiStreamBus.from_prefix(dut, prefix, bus_separator="__")
        super().__init__(bus, clk, speed=BITS_PER_SECOND)
        self.stream.log.setLevel(logging.ERROR)

    async def _run(self):
        while True:
            beat = await self.stream.recv()
            await _wire_time(PREAMBLE_BYTES)
            frame = bytearray()
            while True:
                keep = int(beat.tkeep)
                count = keep.bit_length()
                last = int(beat.tlast)
                assert keep == (1 << count) - 1, f"tkeep {keep:#x} has a gap"
                assert last or count == BEAT_BYTES, "a beat inside a frame is not full"
                frame += int(beat.tdata).to_bytes(BEAT_BYTES, "little")[:count]
                await _wire_time(count)
                if last:
                    break
                assert not self.stream.empty(), "underflow: the card did not send a frame back to back"
                beat = self.stream.recv_nowait()
            self.frames += 1
            if int(beat.tuser) & 1:
                self.spoiled += 1
            else:
                self._deliver(bytes(frame))
            await _wire_time(FCS_BYTES + GAP_BYTES + (self.idle_bytes() if self.idle_bytes else 0))


class MacRx(EthMacRx):
    """What the card receives: :meth:`receive` queues a frame, sent on at line rate.

    Attributes
    ----------
    waiting : int
        Frames queued or under way.
    """

    def __init__(self, dut, prefix, clk):
        logging.getLogger(f"cocotb.{dut._name}.{prefix}").setLevel(logging.ERROR)
        bus = AxiStreamBus.from_prefix(dut, prefix, bus_separator="__")
        self.waiting = 0
        super().__init__(bus, clk, speed=BITS_PER_SECOND)
        self.stream.log.setLevel(logging.ERROR)

    def receive(self, frame, bad=False):
        """Queue a frame; ``bad`` marks it as one with a wrong FCS."""
        self.waiting += 1
        self.queue.put_nowait((frame, bad))

    async def _run(self):
        while True:
            frame, bad = await self.queue.get()
            await _wire_time(PREAMBLE_BYTES)
            for at in range(0, len(frame), BEAT_BYTES):
                chunk = frame[at:at + BEAT_BYTES]
                last = at + BEAT_BYTES >= len(frame)
                await self.stream.send(AxiStreamTransaction(
                    tdata=int.from_bytes(chunk, "little"), tkeep=(1 << len(chunk)) - 1, tlast=int(last),
                    tuser=int(bad and last)))
                await _wire_time(len(chunk))
            self.waiting -= 1
            await _wire_time(FCS_BYTES + GAP_BYTES)

