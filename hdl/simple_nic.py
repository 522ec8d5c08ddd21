"""Simple NIC: raw Ethernet frames between host memory and the MAC."""

from types import SimpleNamespace

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .contract import abi, wire
from .contract.params import CardParams
from .part.counter_ports import DropEvent, count_outputs
from .part.interfaces import RingSlot
from .part.layouts import (
    BEAT_BITS,
    BEAT_BYTES,
    FRAME_LENGTH_WIDTH,
    NIC_RX,
    NIC_TX,
    NIC_TX_DATA,
    NIC_TX_INLINE,
    PAYLOAD_MAX,
    Beat,
    DmaRequest,
    RawFrame,
)
from .part.registers import register_port
from .part.stream import Fifo
from .ring.size import INDEX_WIDTH

IN_FLIGHT = 4              # NIC_TX frames being read; NIC_RX frames being written
HEAD_BITS = NIC_TX_INLINE["data"].width
READ, REJECTED, SILENT, INLINE = range(4)      # a NIC_TX descriptor: its frame is read, or what is done instead


class _Move(data.Struct):
    entry: NIC_RX
    discard: 1      # the frame has no slot: drop its bytes


class SimpleNicTx(wiring.Component):
    """Reads the frames of NIC_TX descriptors and sends them.

    Reads of up to 4 frames are in flight. One beat per cycle, latency 1 after the DMA data; a descriptor
    takes 2 cycles and one more per 4096 bytes. A frame whose read failed ends with ``error``: the sink must drop it.
    Descriptors with a bad length or opcode are rejected. Descriptors are retired in order, when their frame was read.

    A NIC_TX_INLINE, with the NIC_TX_DATA before it, has its frame: the first beat leaves 2 cycles after the descriptor
    came. One such frame is kept while frames before it are being read, and the next inline descriptors wait for it. A
    card without inline payload rejects them.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(512))
        NIC_TX, NIC_TX_INLINE and NIC_TX_DATA descriptors.
    o_bulk_request : Out(stream.Signature(DmaRequest))
        One group per frame.
    i_bulk : In(stream.Signature(Beat))
        The frames.
    o : Out(stream.Signature(Beat))
        The frames.
    retire : Out(1)
        The oldest descriptor is finished.
    idle : Out(1)
    drop : Out(DropEvent)
        BAD_DESCRIPTOR or DMA_ERROR.
    """

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(BEAT_BITS)),
            "o_bulk_request": Out(stream.Signature(DmaRequest)),
            "i_bulk": In(stream.Signature(Beat)),
            "o": Out(stream.Signature(Beat)),
            "retire": Out(1),
            "idle": Out(1),
            "drop": Out(DropEvent),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.pending = pending = Fifo(range(4), IN_FLIGHT)    # kinds of descriptors, in order

        descriptor = data.View(NIC_TX, self.i.payload)
        kind, waits, accepted = Signal(range(4)), Signal(), Signal()
        address, left = Signal(64), Signal(FRAME_LENGTH_WIDTH)
        request, final = self.o_bulk_request.p, Signal()
        m.d.comb += [
            kind.eq(Mux((descriptor.opcode == abi.NicTxOpcode.FRAME) & (descriptor.length >= wire.ETH.size_bytes)
                        & (descriptor.length <= abi.FRAME_MAX), READ, REJECTED)),
            accepted.eq(self.i.valid & self.i.ready),
        ]
        with m.FSM() as fsm:
            with m.State("CHECK"):
                # waits for a descriptor, and for space for it
                m.d.comb += [
                    pending.i.payload.eq(kind),
                    pending.i.valid.eq(self.i.valid & ~waits),
                    self.i.ready.eq(pending.i.ready & ~waits),
                ]
                m.d.sync += [address.eq(descriptor.address), left.eq(descriptor.length)]
                with m.If(accepted & (kind == READ)):
                    m.next = "READ"
            with m.State("READ"):
                # waits for the requests to be accepted
                m.d.comb += [
                    request.address.eq(address),
                    final.eq(left <= PAYLOAD_MAX),
                    request.last.eq(final),
                    request.length.eq(Mux(final, left, PAYLOAD_MAX)),
                    self.o_bulk_request.valid.eq(1),
                ]
                with m.If(self.o_bulk_request.ready):
                    m.d.sync += [address.eq(address + PAYLOAD_MAX), left.eq(left - PAYLOAD_MAX)]
                    with m.If(final):
                        m.next = "CHECK"

        # Frames leave in order: those that were read, and inline ones.
        load, reads, ends = Signal(), Signal(), Signal()
        oldest = [Signal(name=f"oldest_{name}") for name in ("read", "rejected", "silent", "inline")]
        beat = Signal(Beat)
        m.d.comb += [
            load.eq(~self.o.valid | self.o.ready),
            *(signal.eq(pending.o.valid & (pending.o.payload == code)) for code, signal in enumerate(oldest)),
            self.i_bulk.ready.eq(load & oldest[READ]), reads.eq(self.i_bulk.valid & self.i_bulk.ready),
            beat.eq(self.i_bulk.payload),
        ]
        leaves = Signal()
        m.d.comb += leaves.eq(load & oldest[INLINE])
        if self.params.inline_bytes:
            self._inline(m, SimpleNamespace(kind=kind, waits=waits, accepted=accepted, beat=beat, leaves=leaves,
                                            chosen=oldest[INLINE]))
        m.d.sync += self.drop.stb.eq(0)
        with m.If(load):
            m.d.sync += [self.o.payload.eq(beat), self.o.valid.eq(reads | leaves)]

        # The host's buffer is free again when the last beat was read.
        m.d.comb += [
            ends.eq((reads | leaves) & beat.last),
            pending.o.ready.eq(ends | oldest[REJECTED] | oldest[SILENT]),
            self.retire.eq(pending.o.valid & pending.o.ready),
            self.idle.eq(~pending.o.valid & ~self.o.valid & fsm.ongoing("CHECK")),
        ]
        with m.If(self.retire & (oldest[REJECTED] | (oldest[READ] & beat.error))):
            m.d.sync += [
                self.drop.stb.eq(1),
                self.drop.reason.eq(Mux(oldest[REJECTED], abi.Reason.BAD_DESCRIPTOR, abi.Reason.DMA_ERROR)),
            ]
        return m

    def _inline(self, m, s):
        """Keep an inline frame until it leaves: decide about its descriptors, and select its beats.

        Signals ``s``: ``kind`` of the descriptor at the input, whether it ``waits``, whether it is ``accepted``;
        whether an inline frame is ``chosen`` to leave, whether its ``beat`` ``leaves``.
        """
        head, rest = data.View(NIC_TX_INLINE, self.i.payload), data.View(NIC_TX_DATA, self.i.payload)
        kept, kept_rest, length = Signal(HEAD_BITS), Signal(HEAD_BITS), Signal(range(abi.FRAME_INLINE_MAX + 1))
        number, has_rest = Signal(rest.number.shape()), Signal()       # of the newest descriptor, if a NIC_TX_DATA
        taken, second = Signal(), Signal()          # there is a frame; its first beat has left
        lost = (head.length > abi.FRAME_HEAD_BYTES) & ~(has_rest & (head.number == number))
        m.d.comb += s.waits.eq(taken & (head.opcode != abi.NicTxOpcode.FRAME))
        with m.If(rest.opcode == abi.NicTxOpcode.DATA):
            m.d.comb += s.kind.eq(SILENT)
        with m.If((head.opcode == abi.NicTxOpcode.INLINE) & (head.length >= wire.ETH.size_bytes)
                  & (head.length <= abi.FRAME_INLINE_MAX) & ~lost):
            m.d.comb += s.kind.eq(INLINE)
        with m.If(s.accepted):
            m.d.sync += has_rest.eq(s.kind == SILENT)
        with m.If(s.accepted & (s.kind == SILENT)):
            m.d.sync += [kept_rest.eq(rest.data), number.eq(rest.number)]
        with m.If(s.accepted & (s.kind == INLINE)):
            m.d.sync += [kept.eq(head.data), length.eq(head.length), taken.eq(1)]

        begins, ends, last = Cat(kept, kept_rest)[:BEAT_BITS], kept_rest[BEAT_BITS - HEAD_BITS:], Signal()
        m.d.comb += last.eq(second | (length <= BEAT_BYTES))
        with m.If(s.chosen):
            m.d.comb += [s.beat.data.eq(Mux(second, ends, begins)), s.beat.last.eq(last), s.beat.error.eq(0),
                         s.beat.empty.eq(Mux(last, -length, 0))]
        with m.If(s.leaves):
            m.d.sync += [second.eq(~last), taken.eq(~last)]


class SimpleNicRx(wiring.Component):
    """Writes raw frames into the slots of the NIC_RX ring, then their entries.

    One beat per cycle, at most a frame every 4 cycles, limited by the sinks of ``o_*``: while a frame is written, up to
    3 after it have their slots, and issue requests. It never waits for the host: a frame without a free slot, or longer
    than its slot, is read and dropped at once. Half of the slots are reserved for the packets of QPs of the card
    (``roce``): no other frame gets one when half are taken. ``o_request`` and ``o_data`` go straight to ``DmaWrite``
    and ``o_entry`` to the ring writer, so that a frame is ordered before its entry.

    A frame's info is accepted when its requests were accepted, or the frame was dropped. So a source that sends frames
    and payload over one stream, and requests writes of the next payload after the info, never has a group granted whose
    data comes after a frame that waits for a grant itself.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    registers : In(register_port("nic"))
        Slots in host memory; ``nic_rx_slot_log2`` is clamped to 9 .. 14.
    slot : In(RingSlot)
        Of the NIC_RX ring writer.
    time_ns : In(64)
        Arrival time.
    i_info : In(stream.Signature(RawFrame))
        One per frame, at the latest with its first beat.
    i : In(stream.Signature(Beat))
        Whole frames, 1 to 16383 bytes.
    o_request : Out(stream.Signature(DmaRequest))
    o_data : Out(stream.Signature(Beat))
    o_entry : Out(stream.Signature(512))
        NIC_RX entries without phase.
    idle : Out(1)
    count_rx_raw_frames : Out(1)
    drop : Out(DropEvent)
        NIC_RING_FULL or FRAME_TOO_LONG.
    """

    SLOT_LOG2_MIN, SLOT_LOG2_MAX = 9, 14
    COUNTS = {"rx_raw_frames": 1}

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "registers": In(register_port("nic")), "slot": In(RingSlot),
            "time_ns": In(64),
            "i_info": In(stream.Signature(RawFrame)),
            "i": In(stream.Signature(Beat)),
            "o_request": Out(stream.Signature(DmaRequest)),
            "o_data": Out(stream.Signature(Beat)),
            "o_entry": Out(stream.Signature(BEAT_BITS)),
            "idle": Out(1),
            **count_outputs(self.COUNTS),
            "drop": Out(DropEvent),
        })

    def elaborate(self, platform):
        m = Module()
        given = self.registers.nic_rx_slot_log2[:8]
        slot_log2, slot_bytes = Signal(4), Signal(self.SLOT_LOG2_MAX + 1)
        m.d.sync += slot_log2.eq(given)
        with m.If(given < self.SLOT_LOG2_MIN):
            m.d.sync += slot_log2.eq(self.SLOT_LOG2_MIN)
        with m.If(given > self.SLOT_LOG2_MAX):
            m.d.sync += slot_log2.eq(self.SLOT_LOG2_MAX)
        m.d.sync += slot_bytes.eq(1 << slot_log2)

        # `moving`: accepted frames whose bytes are not written; `written`: they wait for their entry; `promised`: have
        # a slot.
        m.submodules.moving = moving = Fifo(_Move, IN_FLIGHT)
        m.submodules.written = written = Fifo(NIC_RX, IN_FLIGHT)
        promised = Signal(range(IN_FLIGHT + 1))
        taken, entered = Signal(), Signal()

        position, offset, address = Signal(INDEX_WIDTH - 1), Signal(INDEX_WIDTH - 1 + self.SLOT_LOG2_MAX), Signal(64)
        left, move = Signal(FRAME_LENGTH_WIDTH), Signal(_Move)
        info, request, final = self.i_info.p, self.o_request.p, Signal()
        no_slot, too_long, half = Signal(), Signal(), Signal(INDEX_WIDTH)
        all_taken, half_taken = Signal(), Signal()
        m.d.comb += [
            half.eq(self.slot.size - (self.slot.size >> 1)),
            no_slot.eq(all_taken | (half_taken & ~info.roce)),
            too_long.eq(info.length > slot_bytes),
            request.address.eq(address),
            final.eq(left <= PAYLOAD_MAX),
            request.last.eq(final),
            request.length.eq(Mux(final, left, PAYLOAD_MAX)),
            moving.i.p.eq(move),
        ]
        # The next slot changes only with a frame, so it is known early. The number of free slots is a cycle late.
        m.d.sync += [self.drop.stb.eq(0), promised.eq(promised + taken - entered),
                     all_taken.eq(self.slot.free <= promised), half_taken.eq(self.slot.free <= half + promised),
                     position.eq((self.slot.position + promised) & (self.slot.size - 1))]
        with m.FSM() as fsm:
            with m.State("INFO"):
                # waits for a frame, and for space in the queue; decides about it
                entry = move.entry
                m.d.sync += [
                    move.discard.eq(no_slot | too_long),
                    entry.roce.eq(info.roce), entry.host.eq(info.host), entry.length.eq(info.length),
                    entry.time_ns.eq(self.time_ns),
                    left.eq(info.length), offset.eq(position << slot_log2),
                    self.drop.reason.eq(Mux(no_slot, abi.Reason.NIC_RING_FULL, abi.Reason.FRAME_TOO_LONG)),
                ]
                with m.If(self.i_info.valid & moving.i.ready & (promised != IN_FLIGHT)):
                    m.next = "ADDRESS"
                    with m.If(no_slot | too_long):
                        m.d.sync += self.drop.stb.eq(1)
                        m.next = "TAKEN"
                    with m.Else():
                        m.d.comb += taken.eq(1)
            with m.State("ADDRESS"):
                # one cycle for the address
                m.d.sync += address.eq(self.registers.nic_rx_buffer + offset)
                m.next = "REQUEST"
            with m.State("REQUEST"):
                # waits for the requests to be accepted
                m.d.comb += self.o_request.valid.eq(1)
                with m.If(self.o_request.ready):
                    m.d.sync += [address.eq(address + PAYLOAD_MAX), left.eq(left - PAYLOAD_MAX)]
                    with m.If(final):
                        m.next = "TAKEN"
            with m.State("TAKEN"):
                # one cycle to accept the info: no combinational path from the requests to its `ready`
                m.d.comb += [self.i_info.ready.eq(1), moving.i.valid.eq(1)]
                m.next = "INFO"

        gone = Signal()         # the last beat of a frame
        discard = moving.o.p.discard
        m.d.comb += [
            self.o_data.payload.eq(self.i.payload),
            self.o_data.valid.eq(self.i.valid & moving.o.valid & ~discard),
            self.i.ready.eq(moving.o.valid & (discard | self.o_data.ready)),
            gone.eq(self.i.valid & self.i.ready & self.i.p.last),
            moving.o.ready.eq(gone),
            written.i.valid.eq(gone & ~discard), written.i.p.eq(moving.o.p.entry),
            self.o_entry.valid.eq(written.o.valid), self.o_entry.payload.eq(written.o.p),
            written.o.ready.eq(self.o_entry.ready),
            entered.eq(self.o_entry.valid & self.o_entry.ready),
            self.count_rx_raw_frames.eq(entered),
            self.idle.eq(fsm.ongoing("INFO") & ~self.i_info.valid & ~moving.o.valid & ~written.o.valid),
        ]
        return m
