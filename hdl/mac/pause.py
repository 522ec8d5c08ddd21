"""Priority-based flow control (IEEE 802.1Qbb): sends and obeys pause frames."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..contract import wire
from ..contract.abi import Reason
from ..contract.params import CardParams
from ..part.counter_ports import DropEvent, count_outputs, merged, pass_counts
from ..part.interfaces import Network
from ..part.layouts import PAUSE_EMPTY, PFC_WORD, WIRE, Beat, PauseFrame, swap_bytes
from ..part.registers import register_port

LINE_BITS_PER_CYCLE = 400       # 100 Gb/s, 4 ns
# Pauses are counted in fractions of a quantum, an integer number per cycle.
PARTS = wire.PAUSE_QUANTUM_BITS // 16
PARTS_PER_CYCLE = LINE_BITS_PER_CYCLE // 16
PARTS_WIDTH = 16 + (PARTS - 1).bit_length()


def _down(parts):
    """Return the counter after one more cycle, at least 0."""
    return Mux(parts > PARTS_PER_CYCLE, parts - PARTS_PER_CYCLE, 0)


class PauseReader(wiring.Component):
    """Parser of the peer's MAC control frames.

    A frame is valid if it is one beat of at least 60 bytes without error, to the address of MAC control frames, with
    the opcode of priority-based flow control. Other frames are dropped. Valid frames that name other priorities only
    have no effect. Latency 2; one beat per cycle.

    Members
    -------
    i : In(stream.Signature(Beat, always_ready=True))
        MAC control frames.
    priority : In(3)
    stb, quanta : Out(1), Out(16)
        Pause for ``quanta`` from now on; 0: end the pause.
    drop : Out(DropEvent)
        BAD_PAUSE.
    """

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(Beat, always_ready=True)), "priority": In(3),
            "stb": Out(1), "quanta": Out(16), "drop": Out(DropEvent),
        })

    def elaborate(self, platform):
        m = Module()
        eth = data.View(WIRE["Ethernet"], swap_bytes(self.i.p.data[:8 * wire.ETH.size_bytes]))
        pfc = data.View(WIRE["PFC"], swap_bytes(self.i.p.data[8 * wire.ETH.size_bytes:][:8 * wire.PFC.size_bytes]))
        first, ended, sound, named, quanta = Signal(init=1), Signal(), Signal(), Signal(), Signal(16)
        with m.If(self.i.valid):
            m.d.sync += first.eq(self.i.p.last)
        m.d.sync += [
            ended.eq(self.i.valid & self.i.p.last),
            sound.eq(first & ~self.i.p.error & (self.i.p.empty <= PAUSE_EMPTY) & (eth.dst == wire.MAC_CONTROL_ADDRESS)
                     & (pfc.opcode == wire.MacControl.PFC)),
            named.eq(pfc.classes.bit_select(self.priority, 1)),
        ]
        with m.Switch(self.priority):
            for k in range(wire.PRIORITIES):
                with m.Case(k):
                    m.d.sync += quanta.eq(pfc[f"time{k}"])
        m.d.sync += [
            self.stb.eq(ended & sound & named), self.quanta.eq(quanta),
            self.drop.stb.eq(ended & ~sound), self.drop.reason.eq(Reason.BAD_PAUSE),
        ]
        return m


class PauseTimer(wiring.Component):
    """Timer of received pauses.

    A peer cannot pause the card for ever: cycles of pause count up, the others down, and when the count
    reaches ``2 ** limit_log2`` cycles all pauses are ignored until it is 0. So no peer can hold the card for much more
    than half of the time.

    Parameters
    ----------
    limit_log2 : int

    Members
    -------
    enable : In(1)
        While low, pauses end and none begins.
    stb, quanta : In(1), In(16)
        A pause of ``quanta`` times 512 bit times from now on; replaces the previous one.
    hold : Out(1)
        Registered.
    count_pause_cycles, count_pause_storms : Out(1)
        Of ``hold``; pauses begin to be ignored.
    """

    COUNTS = {"pause_cycles": 1, "pause_storms": 1}

    def __init__(self, limit_log2):
        self.limit_log2 = limit_log2
        super().__init__({"enable": In(1), "stb": In(1), "quanta": In(16), "hold": Out(1),
                          **count_outputs(self.COUNTS)})

    def elaborate(self, platform):
        m = Module()
        left, weight, ignored = Signal(PARTS_WIDTH), Signal(self.limit_log2 + 1), Signal()
        m.d.sync += left.eq(_down(left))
        with m.If(~self.enable):
            m.d.sync += left.eq(0)
        with m.Elif(self.stb):
            m.d.sync += left.eq(self.quanta * PARTS)
        m.d.sync += [
            self.hold.eq((left != 0) & ~ignored & ~weight[-1]),
            self.count_pause_cycles.eq(self.hold), self.count_pause_storms.eq(0),
        ]
        with m.If(self.hold):
            m.d.sync += weight.eq(weight + ~weight[-1])
        with m.Elif(weight != 0):
            m.d.sync += weight.eq(weight - 1)
        with m.If(weight[-1] & ~ignored):
            m.d.sync += [ignored.eq(1), self.count_pause_storms.eq(1)]
        with m.Elif(weight == 0):
            m.d.sync += ignored.eq(0)
        return m


class PauseRequest(wiring.Component):
    """Timing and duration of pauses for the peer.

    While ``enable``, from ``high`` until ``low``: at once, and again whenever half of the duration has passed; then
    once more, with duration 0. A request waits until its frame begins; the newest one is sent.

    Members
    -------
    enable, high, low : In(1)
    quanta : In(16)
        At least 1.
    valid, ready : Out(1), In(1)
        A frame must be sent; its content was accepted.
    pause : Out(1)
        For ``quanta``; otherwise for 0.
    """

    def __init__(self):
        super().__init__({"enable": In(1), "high": In(1), "low": In(1), "quanta": In(16),
                          "valid": Out(1), "ready": In(1), "pause": Out(1)})

    def elaborate(self, platform):
        m = Module()
        left = Signal(PARTS_WIDTH)      # of half of the duration
        m.d.sync += left.eq(_down(left))
        with m.If(self.ready):
            m.d.sync += self.valid.eq(0)
        with m.If(~self.pause):
            with m.If(self.enable & self.high):
                m.d.sync += [self.pause.eq(1), self.valid.eq(1)]
        with m.Elif(~self.enable | self.low):
            m.d.sync += [self.pause.eq(0), self.valid.eq(1)]
        with m.Elif((left == 0) & ~self.valid):
            m.d.sync += self.valid.eq(1)
        with m.If(self.ready & self.pause):
            m.d.sync += left.eq(self.quanta * (PARTS // 2))
        return m


class Pause(wiring.Component):
    """Flow control by MAC control frames: requests pauses, and holds frames to the MAC back.

    Off unless the register ``pfc`` enables it. A pause frame is sent between two frames, even while frames are held
    back; a pause of the peer holds back all frames that have not begun except the card's pause frames, since all frames
    of a card have the same priority. Both happen after the transmit buffer (see
    :class:`~weft.hdl.mac.pause_gate.PauseGate`), in the MAC's clock domain if there is one: the up to 16 KiB in it do
    not leave during a pause, and no pause frame waits for them.

    Data that arrive after a pause frame was requested need space (*headroom*): a frame of this card that is being sent,
    one of the peer's, the latencies of both (some 60 cycles, 3 KiB), and twice the cable, 125 bytes a metre. If both
    MACs have separate clocks that is 1.25 KiB more: a pause frame is sent 5 cycles of the MAC later; the peer reads it
    8 cycles later and holds frames back 4 cycles later, of which two beats still leave; and arriving data take 8 cycles
    to the receive subsystem. With ``send`` the receive subsystem drops nothing early while the peer obeys, and all
    above ``PAUSE_FROM`` is headroom: of 512 beats 24 KiB, which is enough for frames of 4 KiB and a cable of 100 m, or
    90 m with separate clocks; and of 64 headers 52, which for packets of 64 bytes is a cable of 40 m, or 30 m.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    registers : In(register_port("pause"))
    network : In(Network)
    i_control : In(stream.Signature(Beat, always_ready=True))
        MAC control frames from the MAC.
    o : Out(stream.Signature(PauseFrame))
        A pause frame to send. Its content may change until it is accepted.
    hold : Out(1)
        No frame may begin: 4 cycles after the beat of the received pause frame.
    high, low : In(1)
        The receive subsystem has little space left; it has enough again.
    pause_enabled : Out(1)
        ``send`` of the register.
    drop : Out(DropEvent)
        BAD_PAUSE.
    count_tx_pauses, count_rx_pauses, count_pause_cycles, count_pause_storms : Out(1)
    """

    COUNTS = merged(PauseTimer.COUNTS, {"tx_pauses": 1, "rx_pauses": 1})

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "registers": In(register_port("pause")), "network": In(Network),
            "i_control": In(stream.Signature(Beat, always_ready=True)),
            "o": Out(stream.Signature(PauseFrame)), "hold": Out(1),
            "high": In(1), "low": In(1), "pause_enabled": Out(1),
            "drop": Out(DropEvent), **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = PauseReader()
        m.submodules.timer = timer = PauseTimer(self.params.pause_limit_log2)
        m.submodules.request = request = PauseRequest()
        word = data.View(PFC_WORD, self.registers.pfc)
        connect(m, flipped(self.i_control), reader.i)
        connect(m, reader.drop, flipped(self.drop))
        pass_counts(m, [timer], self)
        m.d.comb += [
            reader.priority.eq(word.priority),
            timer.enable.eq(word.obey), timer.stb.eq(reader.stb), timer.quanta.eq(reader.quanta),
            self.hold.eq(timer.hold),
            request.enable.eq(word.send & (word.quanta != 0)), request.quanta.eq(word.quanta),
            request.high.eq(self.high), request.low.eq(self.low), self.pause_enabled.eq(request.enable),
            self.o.valid.eq(request.valid), request.ready.eq(self.o.valid & self.o.ready),
            self.o.p.source.eq(self.network.mac), self.o.p.priority.eq(word.priority),
            self.o.p.quanta.eq(Mux(request.pause, word.quanta, 0)),
        ]
        m.d.sync += [self.count_tx_pauses.eq(request.ready & request.pause), self.count_rx_pauses.eq(reader.stb)]
        return m
