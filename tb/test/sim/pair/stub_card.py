"""Stand-in for the card, with its ports and minimal function, for tests of the environment.

Registers, 4 bytes each: 0x00 source address (8 bytes), 0x08 destination (8 bytes), 0x10 a write copies 64 bytes from
source to destination and raises vector 0, 0x14 a write of n sends a frame of n beats, 0x18 frames received, 0x1C bytes
received, 0x20 the configured MPS and MRRS codes.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hdl.contract import abi
from weft.hdl.part.axis import axis_signature
from weft.hdl.pcie.usplus import hard_block_members

DWORD = 32
MEMORY_READ, MEMORY_WRITE = 0, 1
FULL_ENABLES = 0xF | 0xF << 8
FRAME_WORD = 0x5EED


def request(address, dwords, kind):
    """Return an RQ descriptor with tag 0."""
    return Cat(Const(0, 2), address[2:64], Const(dwords, 11), Const(kind, 4), Const(0, 49))


class StubCard(wiring.Component):
    """Stub that executes one transaction at a time, on each interface."""

    def __init__(self):
        super().__init__({
            **hard_block_members(), "m_axis_tx": Out(axis_signature(data_width=512, user_width=17)),
            "s_axis_rx": In(axis_signature(data_width=512, user_width=1))})

    def elaborate(self, _platform):
        m = Module()
        registers = Array(Signal(DWORD, name=f"register{i}") for i in range(4))
        message = Array(Signal(DWORD, name=f"message{i}") for i in range(4))
        copy, send, length = Signal(), Signal(), Signal(8)
        frames, octets = Signal(DWORD), Signal(DWORD)
        self._registers(m, registers, message, copy, send, length, frames, octets)
        self._copy(m, Cat(*registers[:2]), Cat(*registers[2:]), message, copy)
        self._mac(m, send, length, frames, octets)
        return m

    def _registers(self, m, registers, message, copy, send, length, frames, octets):
        cq, cc = self.s_axis_cq, self.m_axis_cc
        address, dwords, kind = cq.tdata[0:16], cq.tdata[64:75], cq.tdata[75:79]
        words = [cq.tdata[128:160], cq.tdata[160:192]]
        index, table = address[2:6], address[15]
        m.d.comb += [cq.tready.eq(~cc.tvalid), cc.tuser.eq(0)]
        m.d.sync += [copy.eq(0), send.eq(0)]
        readable = Array([*registers, Const(0, DWORD), Const(0, DWORD), frames, octets,
                          Cat(self.cfg_max_payload, Const(0, 5), self.cfg_max_read_req), *[Const(0, DWORD)] * 7])
        with m.If(cc.tready):
            m.d.sync += cc.tvalid.eq(0)
        with m.If(cq.tvalid & cq.tready & (kind == MEMORY_WRITE)):
            with m.If(table):
                with m.If(address[4:15] == 0):
                    m.d.sync += message[address[2:4]].eq(words[0])
            with m.Elif(index < 4):
                m.d.sync += registers[index[:2]].eq(words[0])
                with m.If(dwords == 2):
                    m.d.sync += registers[(index + 1)[:2]].eq(words[1])
            with m.Else():
                m.d.sync += [copy.eq(index == 4), send.eq(index == 5), length.eq(words[0])]
        with m.If(cq.tvalid & cq.tready & (kind == MEMORY_READ)):
            m.d.sync += [
                cc.tvalid.eq(1), cc.tlast.eq(1), cc.tkeep.eq(Mux(dwords == 2, 0x1F, 0xF)),
                cc.tdata.eq(Cat(
                    address[0:7], Const(0, 9), (dwords << 2)[:13], Const(0, 3), dwords, Const(0, 5),
                    cq.tdata[80:96], cq.tdata[96:104], Const(0, 17), cq.tdata[121:124], cq.tdata[124:127], Const(0, 1),
                    readable[index], readable[(index + 1)[:4]])),
            ]

    def _copy(self, m, source, destination, message, copy):
        rq, rc = self.m_axis_rq, self.s_axis_rc
        line = Signal(512)
        m.d.comb += rq.tuser.eq(FULL_ENABLES)
        with m.FSM():
            with m.State("IDLE"):  # waits for the doorbell
                with m.If(copy):
                    m.next = "READ"
            with m.State("READ"):  # waits for the request to leave
                m.d.comb += [rq.tvalid.eq(1), rq.tlast.eq(1), rq.tkeep.eq(0xF),
                             rq.tdata.eq(request(source, 16, MEMORY_READ))]
                with m.If(rq.tready):
                    m.next = "FIRST_BEAT"
            with m.State("FIRST_BEAT"):  # waits for the completion: descriptor and 52 bytes
                m.d.comb += rc.tready.eq(1)
                with m.If(rc.tvalid):
                    m.d.sync += line[:416].eq(rc.tdata[96:])
                    m.next = "SECOND_BEAT"
            with m.State("SECOND_BEAT"):  # waits for the last 12 bytes
                m.d.comb += rc.tready.eq(1)
                with m.If(rc.tvalid):
                    m.d.sync += line[416:].eq(rc.tdata[:96])
                    m.next = "WRITE"
            with m.State("WRITE"):  # waits for descriptor and 48 bytes to leave
                m.d.comb += [rq.tvalid.eq(1), rq.tkeep.eq(0xFFFF),
                             rq.tdata.eq(Cat(request(destination, 16, MEMORY_WRITE), line[:384]))]
                with m.If(rq.tready):
                    m.next = "WRITE_REST"
            with m.State("WRITE_REST"):  # waits for the last 16 bytes to leave
                m.d.comb += [rq.tvalid.eq(1), rq.tlast.eq(1), rq.tkeep.eq(0xF), rq.tdata.eq(line[384:])]
                with m.If(rq.tready):
                    m.next = "INTERRUPT"
            with m.State("INTERRUPT"):  # waits for the message to leave
                m.d.comb += [rq.tvalid.eq(1), rq.tlast.eq(1), rq.tkeep.eq(0x1F), rq.tuser.eq(0xF),
                             rq.tdata.eq(Cat(request(Cat(*message[:2]), 1, MEMORY_WRITE), message[2]))]
                with m.If(rq.tready):
                    m.next = "IDLE"

    def _mac(self, m, send, length, frames, octets):
        tx, rx = self.m_axis_tx, self.s_axis_rx
        left = Signal(8)
        m.d.comb += [
            rx.tready.eq(1), tx.tuser.eq(0), tx.tvalid.eq(left != 0), tx.tlast.eq(left == 1), tx.tkeep.eq(~0),
            tx.tdata.eq(Cat(*[Cat(left, Const(FRAME_WORD, 24))] * 16)),
        ]
        with m.If(send):
            m.d.sync += left.eq(length)
        with m.Elif(tx.tvalid & tx.tready):
            m.d.sync += left.eq(left - 1)
        with m.If(rx.tvalid):
            m.d.sync += [frames.eq(frames + rx.tlast), octets.eq(octets + sum(rx.tkeep))]


assert abi.MSIX_TABLE_OFFSET == 1 << 15, "the stub decodes bit 15"
