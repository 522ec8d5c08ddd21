"""What Python does for a compiled transmit path: descriptors, packets it does not know how to cut, raw frames."""

import itertools

import numpy as np

from weft.hdl.contract import abi, wire

from ...functional.translate import CAN_SEND, PAYLOAD_MAX, Request, check, translate
from ...functional.transmit import TxPacket, work_packets
from ...functional.transmit_path import TransmitPath
from ..timing import CYCLE_NS
from ..transmit import RAW_FRAMES
from . import run
from .cells import Cells
from .state import AGAIN_STREAM, CARD, LANE, PAGE, RAW_LANE, SEND_STREAM, START, STREAM

Ring, Reason = abi.Ring, abi.Reason
RINGS = {SEND_STREAM: Ring.SEND, AGAIN_STREAM: Ring.RETRANSMIT}
_PROGRAM, _RAW_FROM = (CARD.names.index(name) for name in ("program", "raw_from"))
_HEAD, _TAIL = (LANE.names.index(name) for name in ("head", "tail"))
_AT, _ACTIVE, _WORK, _KNOWN, _PSN, _RSN, _LOCAL, _REMOTE, _LENGTH, _LAST, _CUT, _INDEX, _NOW_FRAME, _SEGMENTS = (
    STREAM.names.index(name) for name in ("at", "active", "work", "known", "psn", "rsn", "local", "remote", "length",
                                          "last", "cut", "index", "now_frame", "segments"))
SIGN = 1 << 63


def signed(value):
    """The 64-bit number that has the same bits."""
    return (value + SIGN) % (1 << 64) - SIGN


class CompiledTransmitPath(TransmitPath):
    """The transmit path of :class:`~weft.model.card.machine.card.CompiledCard`."""

    def __init__(self, card):
        super().__init__(card)
        self._machine, self._number = card.machine, card.number
        self.bind()
        self._packets = [None, None]       # of streams that Python cuts: [iterator, packet, segments]

    def start(self):
        """Do what can be done now."""
        if self.card.transmit_path is self:
            self.card.cells.numbers[_PROGRAM] = START
            self._machine.program(self._number)

    def bind(self):
        """The arrays are others."""
        w, number = self._machine.w, self._number
        self._raw_lane = Cells(w.lane.reshape(-1), w.lane.shape[1] * number + RAW_LANE).numbers
        self._streams = [Cells(w.stream.reshape(-1), 2 * number + which) for which in RINGS]

    # ------------------------------------------------------------------------------------------ descriptors

    def head(self, which):
        """The next descriptor of a ring that has a packet becomes its stream."""
        rings, ring = self.card.rings, RINGS[which]
        while rings.peek(ring) is not None:
            came, entry = rings.came(ring), rings.take(ring)
            work = abi.WORK.unpack(entry)
            simple = self._simple(work)
            if simple:
                first, segments = next(work_packets(work)), 0
                self._kept.pop(ring, None)
            else:
                packets = self.packets(entry, ring)
                found = next(packets, None)
                if found is None:
                    rings.finish(ring)
                    continue
                self._packets[which], (first, segments) = [packets, *found], found
                work = first.work
            stream = self._streams[which]
            numbers = stream.numbers
            numbers[_KNOWN], numbers[_WORK], numbers[_INDEX] = simple, self._new_work(work), -1
            self._show(numbers, first, segments)
            stream.floats[_AT] = came + self.card.timing.descriptor
            return

    def _simple(self, work):
        """Whether machine code can cut all packets of a descriptor."""
        if work.pmtu not in wire.PMTUS or work.opcode not in abi.WRITES or work.inline:
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
        first = self._number * self._machine.w.page.shape[1] + mr.pte_index - mr.va // PAGE
        return all(self._machine.pages[first + va // PAGE:first + (va + length - 1) // PAGE + 1])

    def _new_work(self, work):
        """Its number; the stream refers to it."""
        card = self.card
        mr = None if work.inline else card.tables.mrs.get(work.lkey >> abi.KEY_TAG_BITS)
        return self._machine.new_work(work, (card.mac, card.ip), (
            1, work.remote_va >= 1 << 62, work.retransmit, work.ack_req, work.opcode is abi.WorkOpcode.WRITE_IMM,
            work.inline, work.dst_mac, work.dst_ip, card.ip, work.dqpn, work.rkey, work.psn, work.rsn,
            signed(work.local_va), signed(work.remote_va), work.length, wire.PMTUS[work.pmtu],
            mr.pte_index - mr.va // PAGE if mr and not mr.page_2m else 0, _HEADER[work.retransmit]))

    @staticmethod
    def _show(numbers, packet, segments):
        """The next packet of a stream."""
        local, length = packet.local_va, packet.length
        numbers[_ACTIVE], numbers[_LAST], numbers[_PSN], numbers[_RSN] = 1, packet.last, packet.psn, packet.rsn
        numbers[_LENGTH], numbers[_LOCAL], numbers[_REMOTE] = length, signed(local), signed(packet.remote_va)
        if numbers[_KNOWN]:
            numbers[_INDEX] += 1
            numbers[_CUT] = packet.remote_va + length
            numbers[_SEGMENTS] = (local % PAGE + length + PAGE - 1) // PAGE if length else 0
        else:
            numbers[_SEGMENTS] = len(segments)

    # ------------------------------------------------------------------------------- packets that Python cuts

    def next(self, which):
        """The packet chosen goes to a frame; another one, if there is one, is the next."""
        packets, packet, segments = self._packets[which]
        numbers = self._streams[which].numbers
        found = next(packets, None)
        if found is None:
            numbers[_ACTIVE] = 0
        else:
            self._packets[which] = [packets, *found]
            self._show(numbers, *found)
        machine, payload = self._machine, self.payload(packet, segments)
        frame, w = run.place(machine.table, len(payload)), machine.w
        numbers[_NOW_FRAME], at = frame, w.frame[frame & len(w.frame) - 1].at
        w.bytes[at:at + len(payload)] = np.frombuffer(payload, np.uint8)

    def freeze(self):
        """Tables or memory are about to change: packets that are not yet chosen are cut when it is their turn."""
        for which in RINGS:
            numbers = self._streams[which].numbers
            if numbers[_ACTIVE] and numbers[_KNOWN]:
                work, _ = self._machine.works[numbers[_WORK]]
                packet = TxPacket(work, numbers[_PSN], numbers[_RSN], numbers[_LOCAL], numbers[_REMOTE],
                                  numbers[_LENGTH], bool(numbers[_LAST]))
                self._packets[which] = [self._rest(work, numbers[_INDEX] + 1), packet, self._translate(packet).segments]
                numbers[_KNOWN] = 0

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
        lane = self._raw_lane
        while rings.peek(Ring.NIC_TX) is not None and lane[_TAIL] - lane[_HEAD] < RAW_FRAMES:
            taken = max(now, rings.came(Ring.NIC_TX) + CYCLE_NS, self.card.cells.floats[_RAW_FROM])
            entry = rings.take(Ring.NIC_TX)
            found = abi.NIC_TX.unpack(entry)
            frame = next(self._raw_frames(entry), None)
            if frame is None:
                rings.finish(Ring.NIC_TX)
            else:
                self._machine.enter_raw(self._number, frame, len(frame), True,
                                        taken - now + self.card.timing.frame_descriptor, found.address, found.length)


_HEADER = [wire.header_bytes(opcode) + wire.ICRC_BYTES for opcode in (wire.Opcode.WRITE_ONLY, wire.Opcode.RETX_WRITE)]
