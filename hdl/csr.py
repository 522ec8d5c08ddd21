"""Register block of BAR0, built from :data:`weft.hdl.contract.abi.REGISTERS`."""

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .contract import abi
from .contract.params import CardParams
from .part.counters import CounterRead
from .part.interfaces import MsixTable, RegisterBus
from .part.registers import GROUPS, group_of, register_port

GROUP_WORDS = 8      # 64-bit words per first-stage read multiplexer
READ_LATENCY = 3     # cycles from bus.read_stb to bus.read_ack


def _words():
    """Return {offset of an aligned 64-bit word: [(bit in the word, register)]}."""
    words = {}
    for register in abi.REGISTERS:
        words.setdefault(register.offset & ~7, []).append((8 * (register.offset & 7), register))
    return words


class Csr(wiring.Component):
    """Registers, doorbells, and access to the counters and the MSI-X table.

    A write takes effect 2 cycles after it is accepted; one write per cycle. The response to a read comes
    ``READ_LATENCY`` cycles after ``bus.read_stb``; one read per cycle. Offsets without a register read
    as zero and ignore writes. A wide write covers both registers of its word. Either half of a
    64-bit register can be written alone; a 64-bit doorbell takes effect on wide writes only.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    bus : In(RegisterBus)
        From the host; ``bus.write.ready`` is always 1. The data of a narrow write is in bits 31:0 for either
        half of the 64-bit word. A read is of 4 or 8 aligned bytes; bit 2 of the address matters for
        counters only.
    card, rings, receive, pause, adamap, pacer, nic : Out(register_port(...))
        Every register, in the port of its group. A doorbell keeps its value.
    counters : Out(CounterRead)
        Data one cycle after the index. Reading a counter's low word latches its high word for the read that follows.
    msix : Out(MsixTable)
        Accesses from ``MSIX_TABLE_OFFSET`` on.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "bus": In(RegisterBus), "counters": Out(CounterRead), "msix": Out(MsixTable),
            **{group: Out(register_port(group)) for group in GROUPS},
        })

    def value(self, register):
        """Return the signal of a register."""
        return getattr(getattr(self, group_of(register)), register.name)

    def strobe(self, register):
        """Return the strobe of a doorbell."""
        return getattr(getattr(self, group_of(register)), f"{register.name}_stb")

    def elaborate(self, platform):
        m = Module()
        self._elaborate_write(m)
        self._elaborate_read(m)
        return m

    def _elaborate_write(self, m):
        stb, address, value, halves = Signal(), Signal(16), Signal(64), Signal(2)
        write = self.bus.write.p
        m.d.comb += self.bus.write.ready.eq(1)
        m.d.sync += [
            stb.eq(self.bus.write.valid),
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
                target = self.value(register)
                if register.access is abi.Access.DOORBELL:
                    enable = hit & (halves.all() if register.width == 64 else halves[bit // 32])
                    m.d.sync += self.strobe(register).eq(enable)
                    with m.If(enable):
                        m.d.sync += target.eq(value[bit:bit + register.width])
                else:
                    for low in range(0, register.width, 32):
                        with m.If(hit & halves[(bit + low) // 32]):
                            m.d.sync += target[low:low + 32].eq(value[bit + low:bit + low + 32])

        m.d.comb += [
            self.msix.w_stb.eq(stb & (address >= abi.MSIX_TABLE_OFFSET)),
            self.msix.w_address.eq(address),
            self.msix.w_data.eq(value),
            self.msix.w_mask.eq(Cat(halves[0].replicate(4), halves[1].replicate(4))),
        ]

    def _elaborate_read(self, m):
        """Build the read pipeline: 1: address; 2: words of each group, and the memories; 3: response."""
        address_q, address_2 = Signal(16), Signal(16)
        stb_q, stb_2 = Signal(), Signal()
        m.d.sync += [
            address_q.eq(self.bus.read_address), stb_q.eq(self.bus.read_stb),
            address_2.eq(address_q), stb_2.eq(stb_q),
            self.bus.read_ack.eq(stb_2),
        ]
        m.d.comb += [
            self.counters.index.eq((address_q - abi.COUNTER_BASE) >> 3),
            self.msix.r_address.eq(Cat(Const(0, 3), address_q[3:])),
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
                                m.d.sync += group[bit:bit + register.width].eq(self.value(register))
            groups.append(group)

        counter_high = Signal(abi.COUNTER_WIDTH - 32)
        is_counter = Signal()
        m.d.comb += is_counter.eq((address_2 >= abi.COUNTER_BASE)
                                  & (address_2 < abi.COUNTER_BASE + 8 * len(abi.COUNTERS)))
        merged = groups[0]
        for group in groups[1:]:
            merged = merged | group
        with m.If(address_2 >= abi.MSIX_TABLE_OFFSET):
            m.d.sync += self.bus.read_data.eq(self.msix.r_data)
        with m.Elif(is_counter):
            with m.If(address_2[2]):
                m.d.sync += self.bus.read_data.eq(Cat(self.counters.data[:32], counter_high))
            with m.Else():
                m.d.sync += self.bus.read_data.eq(self.counters.data)
                with m.If(stb_2):
                    m.d.sync += counter_high.eq(self.counters.data[32:])
        with m.Else():
            m.d.sync += self.bus.read_data.eq(merged)
