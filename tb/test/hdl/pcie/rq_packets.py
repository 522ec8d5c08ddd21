"""Packets as the hard block receives them on RQ, with and without straddle; the rules of PG213 are asserted."""

from dataclasses import dataclass

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiStreamBus, AxiStreamSink

from weft.hdl.pcie.rq import RequestDescriptor, RequestUser
from weft.hdl.pcie.tlp import LANES
from weft.tb.sim.block.pcie.usplus_host import without_gaps
from weft.tb.sim.stream.payload import unpack

HEADER_DWORDS, HALF, HALF_POINTER = 4, 8, 0b10


@dataclass
class Request:
    """A request: fields of its descriptor and sideband, and its payload as double words."""

    kind: int
    address: int
    dwords: int
    tag: int
    first_be: int
    last_be: int
    sequence: int
    payload: list

    @classmethod
    def of(cls, words, first_be, last_be, sequence):
        """Decode a request from all its double words."""
        head = unpack(RequestDescriptor, sum(word << 32 * k for k, word in enumerate(words[:HEADER_DWORDS])))
        assert len(words) == HEADER_DWORDS + head.dwords * head.kind, "length of packet and header differ"
        return cls(head.kind, head.address, head.dwords, head.tag, first_be, last_be, sequence, words[HEADER_DWORDS:])


class WholeSink:
    """Sink of RQ without straddle: one packet after the other, each from byte 0 on."""

    def __init__(self, dut, rng, pause):
        self._axis = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis_rq", bus_separator="__"), dut.clk, dut.rst)
        self._axis.log.setLevel("WARNING")
        self._axis.set_pause_generator(iter(lambda: rng.random() < pause, None))
        cocotb.start_soon(without_gaps(dut, "m_axis_rq"))

    def empty(self):
        return self._axis.empty()

    async def recv(self):
        """Return the next packet."""
        frame = await self._axis.recv(compact=True)
        words = list(frame.tdata)
        user, last = (frame.tuser,) * 2 if isinstance(frame.tuser, int) else (frame.tuser[0], frame.tuser[-1])
        user, ends = unpack(RequestUser, user), unpack(RequestUser, last)
        assert (user.is_sop, user.sop_pointer0, user.discontinue) == (1, 0, 0)
        assert (ends.is_eop, ends.eop_pointer0) == (1, (len(words) - 1) % LANES)
        assert len(words) <= LANES or not user.is_eop
        return Request.of(words, user.first_be0, user.last_be0, user.seq_num0)


class StraddledSink:
    """Sink of RQ with straddle: packets start at byte 0, or at byte 32 if another packet ends before it in the beat.

    Attributes
    ----------
    beats : int
        Number of beats taken.
    idle : int
        Cycles without a beat since the first one.
    """

    def __init__(self, dut, rng, pause):
        self.dut, self.rng, self.pause, self.beats, self.idle = dut, rng, pause, 0, 0
        self._packets, self._words, self._marks = Queue(), None, None
        cocotb.start_soon(self._run())

    def empty(self):
        return self._packets.empty()

    async def recv(self):
        """Return the next packet."""
        return await self._packets.get()

    async def _run(self):
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        dut.m_axis_rq__tready.value = 1
        while True:
            await edge
            if int(dut.rst.value):
                continue
            valid, ready = int(dut.m_axis_rq__tvalid.value), int(dut.m_axis_rq__tready.value)
            assert valid or self._words is None, "tvalid falls inside a packet"
            if valid and ready:
                self.beats += 1
                self._take(int(dut.m_axis_rq__tdata.value), unpack(RequestUser, int(dut.m_axis_rq__tuser.value)))
            elif ready and self.beats:
                self.idle += 1
            dut.m_axis_rq__tready.value = int(self.rng.random() >= self.pause)

    def _take(self, data, user):
        words = [data >> 32 * k & 0xFFFF_FFFF for k in range(LANES)]
        assert user.is_sop in (0b00, 0b01, 0b11) and user.is_eop in (0b00, 0b01, 0b11) and not user.discontinue
        begins = [(user.sop_pointer0, user.first_be0, user.last_be0, user.seq_num0),
                  (user.sop_pointer1, user.first_be1, user.last_be1, user.seq_num1)][:user.is_sop.bit_count()]
        ends = [user.eop_pointer0, user.eop_pointer1][:user.is_eop.bit_count()]
        at, high = 0, False
        if self._words is None:
            assert begins and begins[0][0] == 0, "nothing continues, and nothing begins in byte 0"
        while True:
            if self._words is None:
                pointer, *self._marks = begins.pop(0)
                assert pointer == (HALF_POINTER if high else 0)
                self._words, at = [], HALF if high else 0
            if not ends:
                self._words += words[at:]
                break
            end = ends.pop(0)
            assert end >= at
            self._words += words[at:end + 1]
            self._packets.put_nowait(Request.of(self._words, *self._marks))
            self._words = None
            if not begins:
                break
            assert end < HALF and not high, "a packet begins where another is"
            high = True
        assert not begins and not ends
