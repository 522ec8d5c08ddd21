"""The UltraScale+ PCIe hard block between a host and a card."""

import logging
import random
import struct
from collections import deque
from dataclasses import dataclass

from cocotb.queue import Queue
from cocotb.triggers import Event, RisingEdge
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpAt, TlpAttr, TlpFmt, TlpTc
from cocotbext.pcie.core.utils import PcieId
from cocotbext.pcie.xilinx.us import UltraScalePlusPcieDevice, usp_model
from cocotbext.pcie.xilinx.us.tlp import Tlp_us, req_type_to_tlp_type

from weft.hdl.contract import abi
from weft.tb.sim.pcie.lean_pcie import ROOT_ID
from weft.tb.sim.stream.bus import BEAT_BYTES, Bus, Sink, Source
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS

DWORD_BYTES = 4
DESCRIPTOR_BYTES = 16          # of a request; the descriptor of a completion has 12
BEAT_ENABLES = (1 << BEAT_BYTES) - 1
ALL_LANES = (1 << BEAT_BYTES // DWORD_BYTES) - 1
RC_SLOTS = 4                   # with straddle, completions begin at quarters of a beat
SLOT_BYTES = BEAT_BYTES // RC_SLOTS      # unit of start positions, on RQ too
# Bits of the 512-bit interfaces' tuser (PG213): of RQ, of CC, of RC, of CQ. Parity is disabled.
RQ_SOP, RQ_SOP_SLOT, RQ_EOP, RQ_EOP_LANE, RQ_DISCONTINUE, RQ_SEQUENCE = 1 << 20, 22, 1 << 26, 28, 1 << 36, 61
CC_DISCONTINUE = 1 << 16
RC_SOP, RC_SOP_SLOT, RC_EOP, RC_EOP_LANE, RC_DISCONTINUE = 1 << 64, 68, 1 << 76, 80, 1 << 96
CQ_ENABLES, CQ_SOP, CQ_EOP, CQ_EOP_LANE, CQ_DISCONTINUE = 16, 1 << 80, 1 << 86, 88, 1 << 96

COMPLETION_HEADERS = 128       # capacity of the completion buffer (PG213)
NONPOSTED_CREDITS = 15         # saturated value: 15 or more
IO_AND_MEMORY, BUS_MASTER = 0b011, 1 << 2       # bits of cfg_function_status
BUSES = {"rq_bus": "m_axis_rq", "rc_bus": "s_axis_rc", "cq_bus": "s_axis_cq", "cc_bus": "m_axis_cc"}
FROM_CARD = ("cfg_flr_done",)
TO_CARD = ("cfg_max_payload", "cfg_max_read_req", "cfg_function_status", "cfg_interrupt_msix_enable",
           "cfg_interrupt_msix_mask", "cfg_flr_in_process", "pcie_rq_seq_num0", "pcie_rq_seq_num_vld0",
           "pcie_rq_seq_num1", "pcie_rq_seq_num_vld1", "pcie_tfc_nph_av")


def options(vectors, straddle):
    """Return the parameters of ``UltraScalePlusPcieDevice`` for a card with these settings of ``CardParams``."""
    return {
        "pcie_generation": 3, "pcie_link_width": 16, "user_clk_frequency": 1e9 / CLOCK_PERIOD_NS,
        "alignment": "dword", "max_payload_size": 1024, "enable_client_tag": True, "enable_extended_tag": True,
        "pf0_msix_enable": True, "pf0_msix_table_size": vectors - 1,
        "pf0_msix_table_bir": 0, "pf0_msix_table_offset": abi.MSIX_TABLE_OFFSET,
        "pf0_msix_pba_bir": 0, "pf0_msix_pba_offset": abi.MSIX_PBA_OFFSET,
        "rq_straddle": straddle, "rc_4tlp_straddle": straddle}


def cut_off(device, request, code):
    """Release the tag of a read and return the completion with which the hard block reports an error of it."""
    device.active_request[request.tag] = None
    end = usp_model.Tlp_us(Tlp.create_completion_for_tlp(request, ROOT_ID, status=CplStatus.SC))
    end.error_code, end.request_completed = code, True
    return end


@dataclass
class _Packet:
    """Packet received on RQ or CC: dwords as ``data``, and the sideband of the first beat."""

    content: bytes
    user: int
    discontinue: bool

    @property
    def data(self):
        return memoryview(self.content).cast("I")


class _PacketSink(Sink):
    """Sink of RQ or CC: receives packets beat by beat; beyond ``queue_occupancy_limit_frames``, the card must wait.

    Inside a packet, ``tvalid`` must be high in every cycle: otherwise the hard block nullifies the packet (PG213).
    """

    _discontinue = RQ_DISCONTINUE

    def __init__(self, bus, *_, **__):
        super().__init__(bus)
        self.width, self.queue_occupancy_limit_frames = len(bus.tdata), 0
        self._packets, self._content, self._user, self._discontinued = Queue(), bytearray(), 0, False

    async def recv(self):
        return await self._packets.get()

    def space(self, taking):
        return self._packets.qsize() <= self.queue_occupancy_limit_frames

    def gap(self):
        assert not self._content, f"{self.bus._name}: tvalid falls inside a packet"

    def take(self, bits):
        content, keep, last, user = self.bus.parts(bits)
        if not self._content:
            self._user = user
        self._content += content[:DWORD_BYTES * keep.bit_count()]
        self._discontinued = self._discontinued or bool(user & self._discontinue)
        if last:
            self._end()

    def _end(self):
        self._packets.put_nowait(_Packet(bytes(self._content), self._user, self._discontinued))
        self._content, self._discontinued = bytearray(), False


class _CcSink(_PacketSink):
    _discontinue = CC_DISCONTINUE


class _StraddledRqSink(_PacketSink):
    """Sink of RQ with straddle: a packet begins in byte 0, or in byte 32 after the end of another packet."""

    def take(self, bits):
        content, _, _, user = self.bus.parts(bits)
        begins = [(user >> RQ_SOP_SLOT + 2 * k & 3, user >> 4 * k & 0xF | (user >> 8 + 4 * k & 0xF) << 8
                   | (user >> RQ_SEQUENCE + 6 * k & 0x3F) << RQ_SEQUENCE) for k in range(2) if user & RQ_SOP << k]
        ends = [user >> RQ_EOP_LANE + 4 * k & 0xF for k in range(2) if user & RQ_EOP << k]
        self._discontinued = self._discontinued or bool(user & self._discontinue)
        while self._content or begins:
            start = 0
            if not self._content:
                slot, self._user = begins.pop(0)
                start = slot * SLOT_BYTES
            self._content += content[start:DWORD_BYTES * (ends[0] + 1) if ends else BEAT_BYTES]
            if not ends:
                assert not begins, f"{self.bus._name}: a packet begins inside another"
                return
            del ends[0]
            self._end()


class _PacketSource(Source):
    """Source of RC or CQ: sends packets, each ``(content, user of each beat)``, one after the other.

    With more than ``queue_occupancy_limit_frames`` queued packets, :meth:`send` waits.
    """

    def __init__(self, bus, *_, **__):
        super().__init__(bus)
        self.width, self.queue_occupancy_limit_frames = len(bus.tdata), 0
        self._packets, self._beats, self._next, self._taken = deque(), deque(), None, Event()

    async def send(self, packet):
        while len(self._packets) > self.queue_occupancy_limit_frames:
            self._taken.clear()
            await self._taken.wait()
        self._packets.append(packet)
        self._refill()
        self.ticker.wake(self._edge)

    def next(self):
        word, self._next = self._next, None
        self._refill()
        return word

    def idle(self):
        return self._next is None

    def _refill(self):
        """Prepare the next beat, and the beats after it."""
        self._unpack()
        if self._next is None and self._beats:
            self._next = self._beats.popleft()
            self._unpack()

    def _unpack(self):
        if self._beats or not self._packets:
            return
        content, users = self._packets.popleft()
        self._taken.set()
        for at, user in zip(range(0, len(content), BEAT_BYTES), users, strict=True):
            chunk = content[at:at + BEAT_BYTES]
            self._beats.append(self.bus.word(
                chunk, (1 << len(chunk) // DWORD_BYTES) - 1, at + BEAT_BYTES >= len(content), user))


class _StraddledSource(_PacketSource):
    """Source of RC with straddle: packets, each ``(content, byte enables, discontinue)``; up to four begin in a beat.

    Packets begin at bytes 0, 16, 32 and 48, contiguous as far as they are available. A discontinued packet shares no
    beat.
    """

    def __init__(self, bus, *_, **__):
        super().__init__(bus)
        self._packet, self._at = None, 0      # packet in transmission, and number of bytes sent

    def next(self):
        content, user, begun, ended = bytearray(), 0, 0, 0
        for slot in range(RC_SLOTS):
            if self._packet is None:
                if not self._packets or content and self._packets[0][-1]:
                    break
                self._packet, self._at = self._packets.popleft(), 0
                self._taken.set()
                user |= RC_SOP << begun | slot << RC_SOP_SLOT + 2 * begun
                begun += 1
            packet, enables, discontinue = self._packet
            part = packet[self._at:self._at + SLOT_BYTES]
            user |= (enables >> self._at & (1 << SLOT_BYTES) - 1) << SLOT_BYTES * slot
            content += part
            self._at += SLOT_BYTES
            if self._at >= len(packet):
                user |= RC_EOP << ended | _last_lane(content) << RC_EOP_LANE + 4 * ended
                ended += 1
                content += bytes(SLOT_BYTES - len(part))
                self._packet = None
                if discontinue:
                    user |= RC_DISCONTINUE
                    break
        return self.bus.word(content, ALL_LANES, 0, user) if content else None

    def idle(self):
        return self._packet is None and not self._packets

    def _refill(self):
        """Do nothing: a beat is built when it is sent."""


def _enables(dwords, first, last):
    """Return the byte enables of a payload."""
    if dwords <= 1:
        return first * dwords
    return first | ((1 << 4 * (dwords - 2)) - 1) << 4 | last << 4 * (dwords - 1)


def _last_lane(content):
    return (len(content) - 1) % BEAT_BYTES // DWORD_BYTES


class _Tlp(Tlp_us):
    """TLP that is packed and unpacked as a whole, not dword by dword."""

    @classmethod
    def unpack_us_rq(cls, packet, check_parity=False):
        low, high, dword2, dword3 = struct.unpack_from("<IIII", packet.content)
        tlp = cls()
        tlp.fmt_type = req_type_to_tlp_type[dword2 >> 11 & 0xF]
        tlp.at, tlp.address = TlpAt(low & 3), high << 32 | low & ~3
        if high:
            tlp.fmt = {TlpFmt.THREE_DW: TlpFmt.FOUR_DW, TlpFmt.THREE_DW_DATA: TlpFmt.FOUR_DW_DATA}[tlp.fmt]
        tlp.length, tlp.ep = dword2 & 0x7FF, bool(dword2 & 1 << 15)
        tlp.requester_id, tlp.completer_id = PcieId.from_int(dword2 >> 16), PcieId.from_int(dword3 >> 8 & 0xFFFF)
        tlp.requester_id_enable = bool(dword3 & 1 << 24)
        tlp.tag, tlp.tc, tlp.attr = dword3 & 0xFF, TlpTc(dword3 >> 25 & 7), TlpAttr(dword3 >> 28 & 7)
        tlp.first_be, tlp.last_be = packet.user & 0xF, packet.user >> 8 & 0xF
        tlp.seq_num = packet.user >> RQ_SEQUENCE & 0x3F
        tlp.discontinue = packet.discontinue
        tlp.data = bytearray(packet.content[DESCRIPTOR_BYTES:])
        return tlp

    def completion(self):
        """Return the bytes of the completion on RC, and the byte enables."""
        content = struct.pack(
            "<III",
            self.lower_address & 0xFFF | self.error_code << 12 | (self.byte_count & 0x1FFF) << 16
            | bool(self.request_completed) << 30,
            self.length & 0x7FF | self.status << 11 | bool(self.ep) << 14 | int(self.requester_id) << 16,
            self.tag & 0xFF | int(self.completer_id) << 8 | self.tc << 25 | self.attr << 28) + self.data
        offset, dwords = self.lower_address & 3, len(self.data) // DWORD_BYTES
        first, last = 0xF << offset & 0xF, 0xF
        if self.byte_count + offset <= self.length * DWORD_BYTES:
            last = 0xF >> (-self.byte_count - self.lower_address & 3)
        return content, _enables(dwords, first & last if dwords == 1 else first, last) << 12

    def pack_us_rc(self):
        content, enables = self.completion()
        users = [enables >> at & BEAT_ENABLES | self.discontinue * RC_DISCONTINUE
                 for at in range(0, len(content), BEAT_BYTES)]
        users[0] |= RC_SOP
        users[-1] |= RC_EOP | _last_lane(content) << RC_EOP_LANE
        return content, users

    def pack_us_cq(self):
        frame = super().pack_us_cq()
        content = struct.pack(f"<{len(frame.data)}I", *frame.data)
        enables = _enables(len(self.data) // DWORD_BYTES, self.first_be, self.last_be) << DESCRIPTOR_BYTES
        users = [(enables >> at & BEAT_ENABLES) << CQ_ENABLES | self.discontinue * CQ_DISCONTINUE
                 for at in range(0, len(content), BEAT_BYTES)]
        users[0] |= CQ_SOP | self.first_be | self.last_be << 8
        users[-1] |= CQ_EOP | _last_lane(content) << CQ_EOP_LANE
        return content, users


class _StraddledTlp(_Tlp):
    """TLP for straddle: its position in a beat is not known before it is sent."""

    def pack_us_rc(self):
        return *self.completion(), bool(self.discontinue)


class _BenchClock:
    """Replacement of the hard block's clock: the bench has one clock for everything."""

    def __init__(self, *_args, **_kwargs):
        pass

    async def start(self):
        pass


class HardBlock(UltraScalePlusPcieDevice):
    """UltraScale+ PCIe hard block, Gen3 x16, 512 bit at 250 MHz; optional straddle on RQ (two TLPs) and RC (four).

    The cocotbext-pcie model has five coroutines that wake at every clock edge, which costs more than the RTL of the
    cards. This class does the same work only when there is any. Its four streams are sources and sinks of
    :mod:`weft.tb.sim.stream.bus`.

    The card's ports in ``dut`` begin with ``prefix``. The bench drives the clock of ``ticker``. ``vectors`` and
    ``straddle`` are ``msix_vectors`` and ``straddle`` of the card's ``CardParams``.
    """

    def __init__(self, dut, prefix, ticker, vectors, *, straddle=False):
        usp_model.Clock, usp_model.Tlp_us = _BenchClock, _StraddledTlp if straddle else _Tlp
        usp_model.RqSink, usp_model.CcSink = _StraddledRqSink if straddle else _PacketSink, _CcSink
        usp_model.RcSource, usp_model.CqSource = _StraddledSource if straddle else _PacketSource, _PacketSource
        super().__init__(
            **options(vectors, straddle), user_clk=ticker.clk,
            **{name: Bus(dut, f"{prefix}{stream}", ticker) for name, stream in BUSES.items()},
            **{name: getattr(dut, f"{prefix}{name}") for name in (*FROM_CARD, *TO_CARD)})
        self.rx_buf_cplh_fc_limit = COMPLETION_HEADERS
        if straddle:
            self.rc_source.queue_occupancy_limit_frames = RC_SLOTS
        self.cfg_ext_tag_enable = getattr(dut, f"{prefix}cfg_ext_tag_enable")
        self.cfg_ext_tag_enable.value = self.cfg_flr_in_process.value = 0
        self.pcie_tfc_nph_av.value = NONPOSTED_CREDITS
        function = self.functions[0]
        function.configure_bar(0, abi.BAR_BYTES)
        function.vendor_id, function.device_id = abi.PCI_VENDOR_ID, abi.PCI_DEVICE_ID
        for model in (self, function):
            model.log.setLevel(logging.ERROR)

    def stall(self, chance, rng):
        """Pause each of the four streams at random."""
        def pauses(rng):
            while True:
                yield rng.random() < chance

        for number, end in enumerate(self._streams()):
            end.pause_by(pauses(random.Random(f"{rng.random()}/{number}")))

    def stall_no_more(self):
        """Stop the random pauses."""
        for end in self._streams():
            end.pause_by(None)

    def _streams(self):
        return self.rq_sink, self.rc_source, self.cq_source, self.cc_sink

    def configured(self):
        """Drive the card's configuration ports with the values that the host configured for the first function."""
        function = self.functions[0]
        self.cfg_max_payload.value = function.pcie_cap.max_payload_size
        self.cfg_max_read_req.value = function.pcie_cap.max_read_request_size
        self.cfg_function_status.value = IO_AND_MEMORY | BUS_MASTER * function.bus_master_enable
        self.cfg_ext_tag_enable.value = int(function.pcie_cap.extended_tag_field_enable)
        self.cfg_interrupt_msix_enable.value = int(function.msix_cap.msix_enable)
        self.cfg_interrupt_msix_mask.value = int(function.msix_cap.msix_function_mask)

    async def _run_cq_logic(self):
        edge = RisingEdge(self.user_clk)
        while True:
            tlp = await self.cq_queue.get()
            await edge
            await self.cq_source.send(tlp.pack_us_cq())

    async def _run_rq_seq_num_logic(self):
        edge, valid = RisingEdge(self.user_clk), self.pcie_rq_seq_num_vld0
        while True:
            number = await self.rq_seq_num.get()
            await edge
            self.pcie_rq_seq_num0.value, valid.value = number, 1
            if self.rq_seq_num.empty():
                await edge
                valid.value = 0

    async def _nothing(self):
        pass

    # The card has no such pins; credits are set once, since the model's link always has some; configured() drives the
    # configuration; MSI-X uses the requester interface.
    _run_reset = _run_cfg_ctrl_logic = _run_tx_fc_logic = _run_cfg_status_logic = _run_cfg_int_logic = _nothing
