"""Stand-in for a port of the DMA write engine: takes requests and data, and writes a dictionary of bytes."""

import random

import cocotb
from cocotb.triggers import RisingEdge

from weft.hdl.part.layouts import Beat, DmaRequest
from weft.tb.sim.stream.stream import StreamSink


class DmaWriteSink:
    """Collects the groups that a block writes.

    Parameters
    ----------
    request, data : str
        Names of the block's streams.

    Attributes
    ----------
    memory : dict
        Address → byte.
    groups : list of (list of (address, length), bytes)
        Every group, in order.
    """

    def __init__(self, dut, clk, *, request="o_request", data="o_data", pause=0.0, rng=None):
        rng = rng or random.Random(request)
        self.clk = clk
        self.memory, self.groups = {}, []
        self.requests = StreamSink(dut, request, clk, pause=pause, rng=random.Random(rng.random()))
        self.beats = StreamSink(dut, data, clk, pause=pause, rng=random.Random(rng.random()))
        cocotb.start_soon(self._run())

    def read(self, address, length):
        return bytes(self.memory[address + k] for k in range(length))

    async def _run(self):
        while True:
            pieces, data, last = [], b"", False
            while not last:
                request = DmaRequest.from_bits(await self.requests.recv())
                assert 1 <= request.length <= 4096
                pieces.append((request.address, request.length))
                last = request.last
            last = False
            while not last:
                beat = Beat.from_bits(await self.beats.recv())
                last = beat.last
                assert last or not beat.empty
                data += int(beat.data).to_bytes(64, "little")[:64 - beat.empty]
            assert len(data) == sum(length for _, length in pieces)
            at = 0
            for address, length in pieces:
                self.memory.update(zip(range(address, address + length), data[at:at + length], strict=True))
                at += length
            self.groups.append((pieces, data))

    async def group(self, index):
        """Return the group with this number when it has arrived."""
        while len(self.groups) <= index:
            await RisingEdge(self.clk)
        return self.groups[index]
