"""Register block of BAR0, built from :data:`weft.hdl.abi.REGISTERS`."""

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from . import abi
from .layouts import RegisterWrite
from .params import CardParams

COUNTER_INDEX_WIDTH = (len(abi.COUNTERS) - 1).bit_length()
GROUP_WORDS = 8      # 64-bit words per first-stage read multiplexer
READ_LATENCY = 3     # cycles from read_stb to read_ack


def _words():
    """{offset of an aligned 64-bit word: [(bit in the word, register)]}"""
    words = {}
    for register in abi.REGISTERS:
        words.setdefault(register.offset & ~7, []).append((8 * (register.offset & 7), register))
    return words


class Csr(wiring.Component):
    """Registers, doorbells, the way to the counters and to the MSI-X table.

    A write takes effect 2 cycles after it is accepted; one write per cycle. A read is answered
    ``READ_LATENCY`` cycles after ``read_stb``; one read per cycle. Offsets without a register read
    as zero and ignore writes. A wide write covers both registers of its word. Either half of a
    64-bit register can be written alone; a 64-bit doorbell acts on wide writes only.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i_write : In(stream.Signature(RegisterWrite))
        Host writes; ``ready`` is always 1. The data of a narrow write is in bits 31:0, whichever
        half of the 64-bit word it goes to.
    read_address, read_stb : In(16), In(1)
        A read of 4 or 8 aligned bytes. Bit 2 of the address matters for counters only.
    read_data, read_ack : Out(64), Out(1)
        The aligned 64-bit word, data in its natural half.
    r_<name> : Out(width) or In(width)
        Every register: RW and DOORBELL are outputs, RO are inputs.
    r_<name>_stb : Out(1)
        A doorbell was rung: ``r_<name>`` holds its value, and keeps it.
    counter_index : Out(6), counter_data : In(48)
        Read port of :class:`~weft.hdl.counters.Counters`; data one cycle after the index. Reading a
        counter's low word latches its high word for the read that follows.
    msix_w_stb, msix_w_address, msix_w_data, msix_w_mask : Out(1), Out(16), Out(64), Out(8)
        Writes from ``MSIX_TABLE_OFFSET`` on: BAR offset of the aligned 64-bit word, data in its
        natural half, byte strobes.
    msix_r_address : Out(16), msix_r_data : In(64)
        Reads of the same range: BAR offset of the aligned word; data one cycle later.
    """

    def __init__(self, params: CardParams):
        self.params = params
        members = {
            "i_write": In(stream.Signature(RegisterWrite)),
            "read_address": In(16), "read_stb": In(1), "read_data": Out(64), "read_ack": Out(1),
            "counter_index": Out(COUNTER_INDEX_WIDTH), "counter_data": In(abi.COUNTER_WIDTH),
            "msix_w_stb": Out(1), "msix_w_address": Out(16), "msix_w_data": Out(64), "msix_w_mask": Out(8),
            "msix_r_address": Out(16), "msix_r_data": In(64),
        }
        for register in abi.REGISTERS:
            if register.access is abi.Access.RO:
                members[f"r_{register.name}"] = In(register.width)
            else:
                members[f"r_{register.name}"] = Out(register.width, init=register.reset)
            if register.access is abi.Access.DOORBELL:
                members[f"r_{register.name}_stb"] = Out(1)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        self._elaborate_write(m)
        self._elaborate_read(m)
        return m

    def _elaborate_write(self, m):
        stb, address, value, halves = Signal(), Signal(16), Signal(64), Signal(2)
        write = self.i_write.p
        m.d.comb += self.i_write.ready.eq(1)
        m.d.sync += [
            stb.eq(self.i_write.valid),
            address.eq(Cat(Const(0, 3), write.address[3:])),
            value.eq(write.data),
            halves.eq(0b11),
        ]
        with m.If(~write.wide):
            m.d.sync += [
                value.eq(Cat(write.data[:32], write.data[:32])),
                halves.eq(Cat(~write.address[2], write.address[2])),
            ]

        for offset, registers in _words().items():
            hit = Signal(name=f"hit_{offset:03x}")
            m.d.comb += hit.eq(stb & (address == offset))
            for bit, register in registers:
                if register.access is abi.Access.RO:
                    continue
                target = getattr(self, f"r_{register.name}")
                if register.access is abi.Access.DOORBELL:
                    enable = hit & (halves.all() if register.width == 64 else halves[bit // 32])
                    m.d.sync += getattr(self, f"r_{register.name}_stb").eq(enable)
                    with m.If(enable):
                        m.d.sync += target.eq(value[bit:bit + register.width])
                else:
                    for low in range(0, register.width, 32):
                        with m.If(hit & halves[(bit + low) // 32]):
                            m.d.sync += target[low:low + 32].eq(value[bit + low:bit + low + 32])

        m.d.comb += [
            self.msix_w_stb.eq(stb & (address >= abi.MSIX_TABLE_OFFSET)),
            self.msix_w_address.eq(address),
            self.msix_w_data.eq(value),
            self.msix_w_mask.eq(Cat(halves[0].replicate(4), halves[1].replicate(4))),
        ]

    def _elaborate_read(self, m):
        """Stage 1 holds the address, stage 2 the words of each group and the memories, stage 3 the answer."""
        address_q, address_2 = Signal(16), Signal(16)
        stb_q, stb_2 = Signal(), Signal()
        m.d.sync += [
            address_q.eq(self.read_address), stb_q.eq(self.read_stb),
            address_2.eq(address_q), stb_2.eq(stb_q),
            self.read_ack.eq(stb_2),
        ]
        m.d.comb += [
            self.counter_index.eq((address_q - abi.COUNTER_BASE) >> 3),
            self.msix_r_address.eq(Cat(Const(0, 3), address_q[3:])),
        ]

        words = sorted(_words().items())
        groups = []
        for at in range(0, len(words), GROUP_WORDS):
            group = Signal(64, name=f"group_{at // GROUP_WORDS}")
            m.d.sync += group.eq(0)
            with m.If(address_q < abi.COUNTER_BASE), m.Switch(address_q[3:12]):
                for offset, registers in words[at:at + GROUP_WORDS]:
                    with m.Case(offset >> 3):
                        for bit, register in registers:
                            if register.access is not abi.Access.DOORBELL:
                                m.d.sync += group[bit:bit + register.width].eq(getattr(self, f"r_{register.name}"))
            groups.append(group)

        counter_high = Signal(abi.COUNTER_WIDTH - 32)
        is_counter = Signal()
        m.d.comb += is_counter.eq((address_2 >= abi.COUNTER_BASE)
                                  & (address_2 < abi.COUNTER_BASE + 8 * len(abi.COUNTERS)))
        merged = groups[0]
        for group in groups[1:]:
            merged = merged | group
        with m.If(address_2 >= abi.MSIX_TABLE_OFFSET):
            m.d.sync += self.read_data.eq(self.msix_r_data)
        with m.Elif(is_counter):
            with m.If(address_2[2]):
                m.d.sync += self.read_data.eq(Cat(self.counter_data[:32], counter_high))
            with m.Else():
                m.d.sync += self.read_data.eq(self.counter_data)
                with m.If(stb_2):
                    m.d.sync += counter_high.eq(self.counter_data[32:])
        with m.Else():
            m.d.sync += self.read_data.eq(merged)
