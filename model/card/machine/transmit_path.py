"""What Python does for a compiled transmit path: descriptors, packets it does not know how to cut, raw frames."""

import itertools

import numpy as np

from weft.hdl import abi, wire

from ...functional.translate import CAN_SEND, PAYLOAD_MAX, Request, check, translate
from ...functional.transmit import TxPacket, work_packets
from ...functional.transmit_path import TransmitPath
from . import run
from .state import AFTER_ROOM, AGAIN_STREAM, CARD, PAGE, RAW_LANE, SEND_STREAM, START

Ring, Reason = abi.Ring, abi.Reason
RINGS = {SEND_STREAM: Ring.SEND, AGAIN_STREAM: Ring.RETRANSMIT}
_PROGRAM, _ROOM_AT = CARD.names.index("program"), CARD.names.index("room_at")
SIGN = 1 << 63


def signed(value):
    """The 64-bit number that has the same bits."""
    return (value + SIGN) % (1 << 64) - SIGN


class CompiledTransmitPath(TransmitPath):
    """The transmit path of :class:`~weft.model.card.machine.card.CompiledCard`."""

    def __init__(self, card):
        super().__init__(card)
        self._machine, self._number = card.machine, card.number
        self._packets = [None, None]       # of streams that Python cuts: [iterator, packet, segments]

    def start(self):
        """Do what can be done now."""
        if self.card.transmit_path is self:
            self.card.cells.numbers[_PROGRAM] = START
            self._machine.program(self._number)

    def room(self, time_ns):
        """There will be room for reads again."""
        self.card.cells.floats[_ROOM_AT] = time_ns + self.card.timing.room
        self.card.cells.numbers[_PROGRAM] = AFTER_ROOM
        self._machine.program(self._number)

    def _stream(self, which):
        return self._machine.w.stream[self._number, which]

    # ------------------------------------------------------------------------------------------ descriptors

    def head(self, which):
        """The next descriptor of a ring that has a packet becomes its stream."""
        rings, ring = self.card.rings, RINGS[which]
        while rings.peek(ring) is not None:
            work = abi.WORK.unpack(entry := rings.take(ring))
            if self._simple(work):
                number, stream = self._new_work(work), self._stream(which)
                stream.work, stream.index, stream.cut, stream.known = number, -1, work.remote_va, 1
                self._show(stream, next(work_packets(work)), 0)
            else:
                packets = self.packets(entry)
                first = next(packets, None)
                if first is None:
                    rings.finish(ring)
                    continue
                self._packets[which], stream = [packets, *first], self._stream(which)
                stream.work, stream.known = self._new_work(first[0].work), 0
                self._show(stream, first[0], len(first[1]))
            stream.at = self.card.loop.now_ns + self.card.timing.descriptor
            return

    def _simple(self, work):
        """Whether machine code can cut all packets of a descriptor."""
        if work.pmtu not in wire.PMTUS or not isinstance(work.opcode, abi.WorkOpcode):
            return False
        tables, va, length = self.card.tables, work.local_va, work.length
        request = Request(work.lkey, va, min(length, PAYLOAD_MAX), 0, work.sqpn, CAN_SEND)
        if check(tables.qps, tables.mrs, request) is not Reason.OK or work.remote_va + length >= 1 << 62:
            return False
        if not length:
            return va < 1 << 62
        mr = tables.mrs[work.lkey >> abi.KEY_TAG_BITS]
        if mr.page_2m or va + length > mr.va + mr.length or va + length >= 1 << 62:
            return False
        first = mr.pte_index - mr.va // PAGE
        there = self._machine.w.page[self._number, first + va // PAGE:first + (va + length - 1) // PAGE + 1]
        return bool(there.all())

    def _new_work(self, work):
        """Its number; the stream refers to it."""
        card, machine = self.card, self._machine
        number = machine.new_work(work, (card.mac, card.ip))
        record = machine.w.work[number]
        record.refs, record.odd = 1, work.remote_va >= 1 << 62
        record.retransmit, record.ack_req = work.retransmit, work.ack_req
        record.imm = work.opcode is abi.WorkOpcode.WRITE_IMM
        record.dst_mac, record.dst_ip, record.src_ip = work.dst_mac, work.dst_ip, card.ip
        record.dqpn, record.rkey, record.psn, record.rsn = work.dqpn, work.rkey, work.psn, work.rsn
        record.local, record.remote = signed(work.local_va), signed(work.remote_va)
        record.length, record.pmtu = work.length, wire.PMTUS[work.pmtu]
        mr = card.tables.mrs.get(work.lkey >> abi.KEY_TAG_BITS)
        record.first_page = mr.pte_index - mr.va // PAGE if mr and not mr.page_2m else 0
        record.header = _HEADER[work.retransmit]
        return number

    def _show(self, stream, packet, segments):
        """The next packet of a stream."""
        stream.active, stream.psn, stream.rsn, stream.length = 1, packet.psn, packet.rsn, packet.length
        stream.local, stream.remote = signed(packet.local_va), signed(packet.remote_va)
        stream.last = packet.last
        if stream.known:
            stream.index += 1
            stream.cut = packet.remote_va + packet.length
            segments = (packet.local_va % PAGE + packet.length + PAGE - 1) // PAGE if packet.length else 0
        stream.segments = segments

    # ------------------------------------------------------------------------------- packets that Python cuts

    def next(self, which):
        """The packet chosen goes to a frame; another one, if there is one, is the next."""
        packets, _, segments = self._packets[which]
        stream = self._stream(which)
        found = next(packets, None)
        if found is None:
            stream.active = 0
        else:
            self._packets[which] = [packets, *found]
            self._show(stream, found[0], len(found[1]))
        memory, machine = self.card.memory, self._machine
        payload = b"".join([memory.read(address, n) for address, n in segments])
        stream.now_frame, w = run.place(machine.table, len(payload)), machine.w
        at = w.frame[stream.now_frame & len(w.frame) - 1].at
        w.bytes[at:at + len(payload)] = np.frombuffer(payload, np.uint8)

    def freeze(self):
        """Tables or memory are about to change: packets that are not yet chosen are cut when it is their turn."""
        for which in RINGS:
            stream = self._stream(which)
            if stream.active and stream.known:
                work, _ = self._machine.works[stream.work]
                packet = TxPacket(work, int(stream.psn), int(stream.rsn), int(stream.local), int(stream.remote),
                                  int(stream.length), bool(stream.last))
                self._packets[which] = [self._rest(work, stream.index + 1), packet, self._translate(packet).segments]
                stream.known = 0

    def _rest(self, work, index):
        return self.checked(work, itertools.islice(work_packets(work), index, None))

    def _translate(self, packet):
        tables = self.card.tables
        return translate(tables.qps, tables.mrs, tables.ptes, Request(
            packet.work.lkey, packet.local_va, packet.length, 0, packet.work.sqpn, CAN_SEND))

    # --------------------------------------------------------------------------------------------- raw frames

    def choose_raw(self):
        """Take raw frames, as many as may be under way."""
        rings, now = self.card.rings, self.card.loop.now_ns
        lane = self._machine.w.lane[self._number, RAW_LANE]
        while rings.peek(Ring.NIC_TX) is not None and lane.free:
            entry = rings.take(Ring.NIC_TX)
            found = abi.NIC_TX.unpack(entry)
            frame = next(self._raw_frames(entry), None)
            if frame is None:
                rings.finish(Ring.NIC_TX)
            else:
                self._machine.enter_raw(self._number, frame, len(frame), True, now + self.card.timing.frame_descriptor,
                                        found.address, found.length)


_HEADER = [wire.header_bytes(opcode) + wire.ICRC_BYTES for opcode in (wire.Opcode.WRITE_ONLY, wire.Opcode.RETX_WRITE)]
