"""Pacer: engine, rates and limits, and the QPs of which a packet was rejected."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract.abi import PACE_GAP_MAX
from ..part.layouts import LIMIT_DOORBELL, RATE_DOORBELL, WORK, hurt_qp, tx_job
from ..part.registers import register_port
from ..part.stream import LUT_RAM_DEPTH, Fifo
from .engine import Engine
from .settings import SETTING, Settings
from .wheel import TIME_BITS

REJECTED = 4        # rejected QPs that wait for the engine; then the transmit path waits


class Pacer(wiring.Component):
    """Sends the packets of paced descriptors at the rate of their QP.

    Throughput and latency are those of :class:`~weft.hdl.pacing.engine.Engine`. A doorbell per cycle is accepted; when
    more than 64 are waiting for the engine, all QPs that wait are examined instead.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    registers : In(register_port("pacer"))
    i_send, i_retransmit, refused
        See :class:`~weft.hdl.pacing.engine.Engine`.
    i_flush : In(stream.Signature(params.qpn_width))
        QP whose descriptors are discarded; accepted when none of its packets is left here.
    i_hurt : In(stream.Signature(hurt_qp(params)))
        See :class:`~weft.hdl.transmit.outcome.Outcome`.
    hurt : Out(1)
        Combinational: the QP ``i_hurt.p.qpn`` was rejected.
    time_ns : In(27)
    o : Out(stream.Signature(tx_job(paced=True)))
    idle : Out(1)
        No descriptor is here.
    """

    def __init__(self, params):
        self.params = params
        super().__init__({
            "registers": In(register_port("pacer")),
            "i_send": In(stream.Signature(WORK)), "i_retransmit": In(stream.Signature(WORK)), "refused": Out(1),
            "i_flush": In(stream.Signature(params.qpn_width)), "i_hurt": In(stream.Signature(hurt_qp(params))),
            "hurt": Out(1), "time_ns": In(TIME_BITS),
            "o": Out(stream.Signature(tx_job(paced=True))), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.engine = engine = Engine(self.params)
        for name in ("i_send", "i_retransmit", "i_flush"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(engine, name))
        wiring.connect(m, engine.o, wiring.flipped(self.o))
        m.d.comb += [self.refused.eq(engine.refused), engine.now.eq(self.time_ns)]
        # The engine's state after a reset is known late, and the tables are large: they are cleared a cycle later.
        self._clear, self._clear_qpn = Signal(init=1, name="clear"), Signal.like(engine.clear_qpn, name="clear_qpn")
        m.d.sync += [self._clear.eq(engine.clear), self._clear_qpn.eq(engine.clear_qpn)]
        self._set(m, engine)
        self._heal(m, engine)
        return m

    def _set(self, m, engine):
        """Store rates and limits."""
        registers = self.registers
        rate, limit = Signal(RATE_DOORBELL), Signal(LIMIT_DOORBELL)
        m.submodules.touched = touched = Fifo(self.params.qpn_width, LUT_RAM_DEPTH, output_registers=1)
        wiring.connect(m, touched.o, engine.i_touch)
        rang, limits, qpn = Signal(), Signal(), Signal(self.params.qpn_width)
        m.d.comb += [
            rate.eq(registers.rate_doorbell), limit.eq(registers.limit_doorbell),
            limits.eq(registers.limit_doorbell_stb), qpn.eq(Mux(limits, limit.qpn, rate.qpn)),
            rang.eq(~self._clear & (
                (limits & ~limit.qpn[len(qpn):].any())
                | (registers.rate_doorbell_stb & ~rate.qpn[len(qpn):].any()))),
            touched.i.valid.eq(rang), touched.i.payload.eq(qpn), engine.all_stb.eq(rang & ~touched.i.ready),
        ]
        m.submodules.settings = settings = Settings(self.params)
        m.d.comb += [
            settings.qpn.eq(qpn), settings.rate_stb.eq(rang & ~limits), settings.limit_stb.eq(rang & limits),
            settings.value.gap.eq(Mux(rate.gap >= PACE_GAP_MAX, PACE_GAP_MAX, rate.gap)),
            settings.value.limited.eq(rate.limited), settings.value.limit.eq(limit.psn),
            settings.read_en.eq(engine.setting_en), settings.read_qpn.eq(engine.setting_qpn),
            engine.setting.eq(settings.setting),
        ]
        with m.If(self._clear):
            m.d.comb += [settings.qpn.eq(self._clear_qpn), settings.rate_stb.eq(1), settings.limit_stb.eq(1),
                         settings.value.eq(Const(0, SETTING.size))]

    def _heal(self, m, engine):
        """Keep the QPs of which a packet was rejected, until the last packet that was on its way has left."""
        m.submodules.rejected = rejected = Fifo(self.params.qpn_width, REJECTED, output_registers=1)
        m.submodules.hurt_qps = hurt_qps = Memory(shape=1, depth=self.params.qps, init=[])
        read, write = hurt_qps.read_port(domain="comb"), hurt_qps.write_port()
        wiring.connect(m, rejected.o, engine.i_rejected)
        change = self.i_hurt
        m.d.comb += [
            self.idle.eq(engine.idle & ~rejected.o.valid),
            read.addr.eq(change.p.qpn), self.hurt.eq(read.data), change.ready.eq(rejected.i.ready),
            rejected.i.valid.eq(change.valid & ~change.p.heals), rejected.i.payload.eq(change.p.qpn),
            write.addr.eq(change.p.qpn), write.data.eq(~change.p.heals), write.en.eq(change.valid & change.ready),
        ]
        with m.If(self._clear):
            m.d.comb += [write.addr.eq(self._clear_qpn), write.data.eq(0), write.en.eq(1)]
