"""Priority-based flow control (IEEE 802.1Qbb): asks the peer to pause, and pauses when it asks."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..contract import wire
from ..contract.abi import Reason
from ..contract.params import CardParams
from ..part.counting import Refusal, count_outputs, merged, pass_counts
from ..part.interfaces import Network
from ..part.layouts import PAUSE_EMPTY, PFC_WORD, WIRE, Beat, PauseFrame, swap_bytes
from ..part.registers import register_port

LINE_BITS_PER_CYCLE = 400       # 100 Gb/s, 4 ns
# Pauses are counted in parts of a quantum, of which a cycle has a whole number.
PARTS = wire.PAUSE_QUANTUM_BITS // 16
PARTS_PER_CYCLE = LINE_BITS_PER_CYCLE // 16
PARTS_WIDTH = 16 + (PARTS - 1).bit_length()


def _down(parts):
    """One cycle less."""
    return Mux(parts > PARTS_PER_CYCLE, parts - PARTS_PER_CYCLE, 0)


class PauseReader(wiring.Component):
    """What the peer's MAC control frames ask for.

    A frame is understood if it is one beat of at least 60 bytes without error, to the address of such frames, with the
    opcode of priority-based flow control. Every other one is refused, and says nothing. Of those that are understood
    the ones that name another priority alone mean nothing, either. Latency 2; one beat per cycle.

    Members
    -------
    i : In(stream.Signature(Beat, always_ready=True))
        MAC control frames.
    priority : In(3)
    stb, quanta : Out(1), Out(16)
        Pause for so long from now on; 0: no longer.
    refuse : Out(Refusal)
        BAD_PAUSE.
    """

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(Beat, always_ready=True)), "priority": In(3),
            "stb": Out(1), "quanta": Out(16), "refuse": Out(Refusal),
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
            self.refuse.stb.eq(ended & ~sound), self.refuse.reason.eq(Reason.BAD_PAUSE),
        ]
        return m


class PauseTimer(wiring.Component):
    """How long frames are held back.

    A peer that is never done is not obeyed for ever: pauses are weighed against the time between them, and when they
    outweigh it by ``2 ** limit_log2`` cycles all are ignored for as long. So nobody can hold the card for much more
    than half of the time.

    Parameters
    ----------
    limit_log2 : int

    Members
    -------
    enable : In(1)
        While low, pauses end and none begins.
    stb, quanta : In(1), In(16)
        A pause of so many times 512 bits of the line from now on, whatever was asked before.
    hold : Out(1)
        Registered.
    count_pause_cycles, count_pause_storms : Out(1)
        Of ``hold``; pauses began to be ignored.
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
    """When the peer is asked to pause, and for how long.

    While ``enable``, from ``high`` until ``low``: at once, and again whenever half of the time has passed; then once
    more, for no time at all. A request waits until its frame begins; of several the newest counts.

    Members
    -------
    enable, high, low : In(1)
    quanta : In(16)
        At least 1.
    valid, ready : Out(1), In(1)
        A frame is to be sent; its content was taken.
    pause : Out(1)
        For ``quanta``; otherwise for none.
    """

    def __init__(self):
        super().__init__({"enable": In(1), "high": In(1), "low": In(1), "quanta": In(16),
                          "valid": Out(1), "ready": In(1), "pause": Out(1)})

    def elaborate(self, platform):
        m = Module()
        left = Signal(PARTS_WIDTH)      # of half of the time
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
    """What MAC control frames are for: asks for pauses, and says when frames to the MAC are to be held back.

    Off unless the register ``pfc`` says otherwise. A pause that is asked for goes between two frames, whatever is held
    back; a pause that the peer asks for holds back all frames that have not begun but the card's own pauses, since the
    frames of a card have no priority of their own. Both happen behind the transmit buffer (see
    :class:`~weft.hdl.mac.pause_gate.PauseGate`), at the MAC's clock if it has its own: the up to 16 KiB in it do not
    leave during a pause, and no pause that is asked for waits behind them.

    What still comes after a pause was asked for needs room (*headroom*): a frame of this card that is under way, one of
    the peer's, what both do meanwhile (some 60 cycles, 3 KiB), and twice the cable, 125 bytes a metre. Where both MACs
    have clocks of their own that is 1.25 KiB more: a pause is asked for 5 cycles of the MAC later; the peer reads it 8
    cycles later and holds frames back 4 cycles later, of which two beats still leave; and what comes is 8 cycles on its
    way to the receive room. With ``send`` the receive room drops nothing early while the peer listens, and all above
    ``PAUSE_FROM`` is headroom: of 512 beats 24 KiB, which is enough for frames of 4 KiB and a cable of 100 m, or 90 m
    with clocks of their own; and of 64 headers 52, which for packets of 64 bytes is a cable of 40 m, or 30 m.

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
        A pause to be sent. What it says may change, and counts when it is taken.
    hold : Out(1)
        No frame may begin: 4 cycles after the beat of the frame that asks for it.
    high, low : In(1)
        The receive room has little space left; it has enough again.
    asks : Out(1)
        ``send`` of the register.
    refuse : Out(Refusal)
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
            "high": In(1), "low": In(1), "asks": Out(1),
            "refuse": Out(Refusal), **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = PauseReader()
        m.submodules.timer = timer = PauseTimer(self.params.pause_limit_log2)
        m.submodules.request = request = PauseRequest()
        word = data.View(PFC_WORD, self.registers.pfc)
        connect(m, flipped(self.i_control), reader.i)
        connect(m, reader.refuse, flipped(self.refuse))
        pass_counts(m, [timer], self)
        m.d.comb += [
            reader.priority.eq(word.priority),
            timer.enable.eq(word.obey), timer.stb.eq(reader.stb), timer.quanta.eq(reader.quanta),
            self.hold.eq(timer.hold),
            request.enable.eq(word.send & (word.quanta != 0)), request.quanta.eq(word.quanta),
            request.high.eq(self.high), request.low.eq(self.low), self.asks.eq(request.enable),
            self.o.valid.eq(request.valid), request.ready.eq(self.o.valid & self.o.ready),
            self.o.p.source.eq(self.network.mac), self.o.p.priority.eq(word.priority),
            self.o.p.quanta.eq(Mux(request.pause, word.quanta, 0)),
        ]
        m.d.sync += [self.count_tx_pauses.eq(request.ready & request.pause), self.count_rx_pauses.eq(reader.stb)]
        return m
