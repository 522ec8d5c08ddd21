"""Registers of the board, in BAR 2."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..part.interfaces import RegisterBus
from .mac_side import COUNTER_BITS, EVENTS, LEVELS

MAGIC = 0x57454654_00000050      # "WEFT", U50
BAR_BYTES = 4096
ID, CONTROL, STATUS, COUNTERS = 0x000, 0x008, 0x010, 0x100
CONTROL_BITS = (
    ("loopback", "Near-end loopback in the transceivers (PMA). Set `mac_reset` during a change."),
    ("mac_reset", "MAC and transceivers are held in reset."),
)
STATUS_BITS = (*LEVELS, "gt_power_good", "pcie_link_up")


class BoardRegisters(wiring.Component):
    """Identity, control, link status and counters, 64 bits each; other offsets read as 0.

    Members
    -------
    bus : In(RegisterBus)
        Writes of the lower half, or of all, of CONTROL are accepted. The response to a read of a counter waits for the
        MAC's clock domain; if that has no clock there is none, and the host gets "unsupported request".
    loopback, mac_reset : Out(1)
    status : In(len(STATUS_BITS))
    counter_address, counter_stb, counter_data, counter_ack
        See :class:`~weft.hdl.board.mac_side.MacSide`.
    """

    def __init__(self):
        super().__init__({
            "bus": In(RegisterBus), "status": In(len(STATUS_BITS)),
            **{name: Out(1) for name, _ in CONTROL_BITS},
            "counter_address": Out(range(len(EVENTS))), "counter_stb": Out(1),
            "counter_data": In(COUNTER_BITS), "counter_ack": In(1)})

    def elaborate(self, platform):
        m = Module()
        bus, write = self.bus, self.bus.write
        control = Cat(*(getattr(self, name) for name, _ in CONTROL_BITS))
        m.d.comb += write.ready.eq(1)
        with m.If(write.valid & (write.p.address == CONTROL)):
            m.d.sync += control.eq(write.p.data)

        outstanding, wanted = Signal(), Signal()      # a counter is being read; the bus still waits for it
        at = bus.read_address
        is_counter = Signal()
        m.d.comb += [
            is_counter.eq((at >= COUNTERS) & (at < COUNTERS + 8 * len(EVENTS))),
            self.counter_address.eq((at - COUNTERS)[3:]),
            self.counter_stb.eq(bus.read_stb & is_counter & ~outstanding),
        ]
        m.d.sync += bus.read_ack.eq(0)
        with m.If(self.counter_ack):
            m.d.sync += [outstanding.eq(0), wanted.eq(0), bus.read_ack.eq(wanted), bus.read_data.eq(self.counter_data)]
        with m.If(bus.read_stb):
            m.d.sync += wanted.eq(self.counter_stb)
            with m.If(self.counter_stb):
                m.d.sync += outstanding.eq(1)
            with m.Elif(~is_counter):
                m.d.sync += [bus.read_ack.eq(1), bus.read_data.eq(0)]
                with m.Switch(at[3:]):
                    with m.Case(ID // 8):
                        m.d.sync += bus.read_data.eq(Const(MAGIC, 64))
                    with m.Case(CONTROL // 8):
                        m.d.sync += bus.read_data.eq(control)
                    with m.Case(STATUS // 8):
                        m.d.sync += bus.read_data.eq(self.status)
        return m
