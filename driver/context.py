"""The open card: bring-up, and the progress engine that moves everything."""

import collections
from dataclasses import dataclass

from weft.hdl import abi, wire

from .command import CommandQueue
from .knitting import EXTENT_BYTES, KnittingBuffer
from .memory import RangeAllocator
from .nic import SimpleNic, control_extension, parse_control
from .report import ReportWorker
from .ring import CardToHostRing, HostToCardRing
from .segment import CHUNK_BYTES

Ring = abi.Ring
CONTROL_ENABLE, CONTROL_RESET = 1, 2
STATUS_RESET_DONE = 2
FIRST_QPN = 2  # 0 and 1 are special on InfiniBand
_TX_RINGS = (Ring.SEND, Ring.RETRANSMIT, Ring.NIC_TX)


class IncompatibleCard(Exception):
    """The device is no Weft card, or one with another interface."""


@dataclass
class ContextConfig:
    """How a card is set up.

    Attributes
    ----------
    ring_log2 : int or dict of Ring to int
        log2 of the ring depths.
    nic_slot_log2 : int
        log2 of the bytes of a raw-frame slot.
    reorder_distance, retransmit_slack, node_age_ns, prefetch_depth, prefetch_watermark : int
        See the registers of those names.
    probe_timeout_ns : int
        Silence before a tail probe: two round trips and a margin.
    extent_bytes : int
        Size of a knitting extent.
    retire_settle_ns : int
        See :class:`~weft.driver.recovery.Receiver`.
    tx_poll_ns : int
        How often the status block is looked at while descriptors are in the card and no interrupt is due.
    """

    ring_log2: object = 6
    nic_slot_log2: int = 11
    reorder_distance: int = 1
    retransmit_slack: int = 1
    node_age_ns: int = 2000
    prefetch_depth: int = 4
    prefetch_watermark: int = 4
    probe_timeout_ns: int = 50_000
    chunk_bytes: int = CHUNK_BYTES
    extent_bytes: int = EXTENT_BYTES
    max_extents: int = 8
    tx_poll_ns: int = 2_000
    retire_settle_ns: int = 1_000
    reset: bool = True

    def log2(self, ring):
        return self.ring_log2 if isinstance(self.ring_log2, int) else self.ring_log2.get(ring, 6)


class Context:
    """An open card.

    Parameters
    ----------
    device : Device
    mac, ip : int
        Addresses of the card.
    config : ContextConfig

    Attributes
    ----------
    raw_frame_handlers : list of callable(frame, entry)
        Get the raw frames that are no control frames of a QP.

    Raises
    ------
    IncompatibleCard
        If magic or major version differ.
    """

    def __init__(self, device, *, mac, ip, config=None):
        self.device, self.mac, self.ip = device, mac, ip
        self.config = config or ContextConfig()
        self.raw_frame_handlers = []
        self.counts = collections.Counter()
        self.open = False
        self._identify()
        self._bring_up()

    # ------------------------------------------------------------------------------------ bring-up

    def read_register(self, name):
        register = abi.REGISTER[name]
        return (self.device.read64 if register.width == 64 else self.device.read32)(register.offset)

    def write_register(self, name, value):
        register = abi.REGISTER[name]
        (self.device.write64 if register.width == 64 else self.device.write32)(register.offset, value)

    def _identify(self):
        magic, version = self.read_register("magic"), self.read_register("version")
        if magic != abi.MAGIC:
            raise IncompatibleCard(f"no Weft card: the magic register reads {magic:#010x}, not {abi.MAGIC:#010x}")
        found = (version >> 24, version >> 16 & 0xFF, version & 0xFFFF)
        if found[:2] != abi.VERSION[:2]:
            text = ".".join(map(str, found))
            raise IncompatibleCard(
                f"the card speaks interface version {text}, this driver {'.'.join(map(str, abi.VERSION))}"
            )
        self.version = found
        tables, adamap, misc = (self.read_register(f"cap_{n}") for n in ("tables", "adamap", "misc"))
        self.max_qp, self.max_mr, self.max_pte = (1 << (tables >> shift & 0xFF) for shift in (0, 8, 16))
        self.window_bits, self.cache_entries = adamap & 0xFFFF, adamap >> 16
        self.max_extents, self.msix_vectors, self.max_prefetch_depth = misc & 0xFF, misc >> 8 & 0xFF, misc >> 16 & 0xFF

    def _bring_up(self):
        config, device = self.config, self.device
        if config.reset:
            self._reset_card()
        device.enable_interrupts(max(abi.VECTOR.values()) + 1)
        self.rings = {
            r: (HostToCardRing if r in abi.HOST_TO_CARD else CardToHostRing)(device, r, config.log2(r)) for r in Ring
        }
        self._status = device.alloc(abi.BLOCK_BYTES, align=abi.BLOCK_BYTES)
        self.write_register("status_block", self._status.physical(0))
        self.nic = SimpleNic(device, self.rings[Ring.NIC_TX], self.rings[Ring.NIC_RX], slot_log2=config.nic_slot_log2)
        depth = max(1, min(config.prefetch_depth, self.max_prefetch_depth or config.prefetch_depth))
        for name, value in (
            ("reorder_distance", config.reorder_distance),
            ("retransmit_slack", config.retransmit_slack),
            ("node_age_ns", config.node_age_ns),
            ("prefetch_depth", depth),
            ("prefetch_watermark", min(config.prefetch_watermark, depth)),
        ):
            self.write_register(name, value)
        for ring in self.rings.values():
            ring.enable()
        self.write_register("control", CONTROL_ENABLE)
        self._generations = {}
        self._free_qpns = collections.deque(range(FIRST_QPN, self.max_qp))
        self._qps = {}
        self._active = collections.OrderedDict()
        self._send_turn = collections.deque()
        self._pds = 0
        self.mr_indices = RangeAllocator(self.max_mr)
        self.pte_ranges = RangeAllocator(self.max_pte)
        self.last_key_tag = {}
        self.commands = CommandQueue(device, self.rings[Ring.COMMAND], self.rings[Ring.RESPONSE])
        self.reports = ReportWorker(self.rings[Ring.META_REPORT], self.find_qp)
        self.commands.call(abi.CommandOpcode.SET_NETWORK, mac=self.mac, ip=self.ip)
        self.knitting = KnittingBuffer(
            device,
            self._announce_extent,
            extent_bytes=config.extent_bytes,
            max_extents=min(config.max_extents, self.max_extents),
        )
        self.open = True

    def _reset_card(self):
        self.write_register("control", CONTROL_RESET)
        self.write_register("control", 0)
        deadline = self.device.now_ns() + 10_000_000
        while not self.read_register("status") & STATUS_RESET_DONE:
            if self.device.now_ns() > deadline:
                raise TimeoutError("the card does not come out of reset")
            self.device.wait(1_000)

    def _announce_extent(self, index, address, length):
        self.commands.call(abi.CommandOpcode.EXTENT_SET, extent=index, address=address, length=length)

    def check_open(self):
        if not self.open:
            raise ValueError("the context is closed")

    # ------------------------------------------------------------------------------- small services

    def new_pd(self):
        self._pds += 1
        return self._pds

    def new_qpn(self):
        """A free QPN and its new generation.

        Raises
        ------
        MemoryError
            If all are in use.
        """
        if not self._free_qpns:
            raise MemoryError(f"all {self.max_qp - FIRST_QPN} QPs are in use")
        qpn = self._free_qpns.popleft()
        return qpn, self.next_generation(qpn)

    def next_generation(self, qpn):
        self._generations[qpn] = (self._generations.get(qpn, 0) + 1) % 256
        return self._generations[qpn]

    def free_qpn(self, qpn):
        self._free_qpns.append(qpn)

    def add_qp(self, qp):
        self._qps[qp.qp_num] = qp
        self.mark_active(qp)

    def remove_qp(self, qp):
        self._qps.pop(qp.qp_num, None)
        self._active.pop(qp, None)
        if qp in self._send_turn:
            self._send_turn.remove(qp)

    def find_qp(self, qpn, generation=None):
        qp = self._qps.get(qpn)
        return qp if qp is not None and generation in (None, qp.generation) else None

    def mark_active(self, qp):
        """``qp`` has something to do in the next :meth:`progress`."""
        self._active[qp] = None

    def doorbell(self, register, layout, **fields):
        self.device.write64(abi.REGISTER[register].offset, int.from_bytes(layout.pack(**fields), "little"))

    def send_control(self, qp, frame):
        """Queue a control frame of a QP."""
        attr = qp.attr
        self.counts[frame.opcode.name] += 1
        self.nic.send(
            wire.build_frame(
                opcode=frame.opcode,
                dst_mac=attr.dest_mac,
                src_mac=self.mac,
                src_ip=self.ip,
                dst_ip=attr.dest_ip,
                sport=qp.sport,
                dest_qp=attr.dest_qp_num,
                psn=frame.psn,
                extensions=control_extension(frame, attr.dest_generation),
                payload=frame.payload,
            )
        )

    def send_raw(self, frame):
        """Send a raw Ethernet frame (without FCS)."""
        self.nic.send(frame)
        self.nic.flush()

    def statistics(self):
        """Counters of the card by name."""
        buffer = self.device.alloc(-(-8 * len(abi.COUNTERS) // 64) * 64, align=4096)
        try:
            self.commands.call(abi.CommandOpcode.STATISTICS, address=buffer.physical(0))
            data = buffer.read(0, 8 * len(abi.COUNTERS))
        finally:
            self.device.free(buffer)
        return {name: int.from_bytes(data[8 * i : 8 * i + 8], "little") for i, (name, _) in enumerate(abi.COUNTERS)}

    # ------------------------------------------------------------------------------------- progress

    def progress(self):
        """One round of everything, without waiting; true if something happened."""
        busy = self._advance_rings()
        busy |= self.commands.progress()
        busy |= self.reports.progress()
        now = self.device.now_ns()
        for entry, frame in self.nic.poll():
            busy = True
            self._take_frame(entry, frame, now)
        for qp in list(self._qps.values()):
            if qp in self._active or qp.receiver.waits_for_blocks or self._is_due(qp, now):
                self._active.pop(qp, None)
                qp.progress(now)
                if (
                    qp.sender is not None
                    and qp not in self._send_turn
                    and (qp.sender.has_work or qp.sender.has_retransmission)
                ):
                    self._send_turn.append(qp)
        self._fill_rings()
        self.nic.flush()
        self._grow_knitting()
        return busy or bool(self._active)

    @staticmethod
    def _is_due(qp, now):
        return qp.deadline is not None and qp.deadline <= now

    def _advance_rings(self):
        status = abi.STATUS_BLOCK.unpack(self._status.read(0, abi.BLOCK_BYTES))
        busy, now = False, self.device.now_ns()
        for ring in _TX_RINGS:
            for qp in self.rings[ring].advance(getattr(status, f"{ring.name.lower()}_cons")):
                busy = True
                if qp is not None and qp.sender is not None:
                    qp.sender.on_transmitted(now)
                    self.mark_active(qp)
        return busy

    def _take_frame(self, entry, frame, now):
        control = parse_control(frame) if entry.roce else None
        qp = self.find_qp(control.dest_qp) if control else None
        if qp is not None:
            qp.on_control(control, now)
            return
        self.counts["raw_frames"] += 1
        for handler in self.raw_frame_handlers:
            handler(frame, entry)

    def _fill_rings(self):
        """Retransmissions first; QPs in turn, one descriptor each."""
        send, retransmit = self.rings[Ring.SEND], self.rings[Ring.RETRANSMIT]
        for qp in list(self._send_turn):
            while retransmit.room and (fields := qp.sender.next_retransmission()):
                retransmit.push(qp.work_descriptor(fields), qp)
        retransmit.ring_doorbell()
        while self._send_turn and send.room:
            qp = self._send_turn.popleft()
            if fields := qp.sender.next_work():
                send.push(qp.work_descriptor(fields), qp)
            if qp.sender.has_work or qp.sender.has_retransmission:
                self._send_turn.append(qp)
                if not any(q.sender.has_work for q in self._send_turn):
                    break
        send.ring_doorbell()

    def _grow_knitting(self):
        if self.knitting.free_blocks * 8 < self.knitting.total_blocks and self.knitting.can_grow:
            self.knitting.grow()

    @property
    def transmitting(self):
        """Descriptors are in the card or wait for ring room: no interrupt tells when they are finished."""
        return bool(
            self._send_turn or self.nic.busy or any(self.rings[r].prod != self.rings[r].cons for r in _TX_RINGS)
        )

    def wait(self, timeout_ns):
        """Sleep until the card has something, a QP's timer is due or the time is over."""
        now = self.device.now_ns()
        until = now + timeout_ns
        for qp in self._qps.values():
            if qp.deadline is not None:
                until = min(until, qp.deadline)
        if self.transmitting:
            until = min(until, now + self.config.tx_poll_ns)
        for ring in abi.CARD_TO_HOST:
            self.rings[ring].arm()
        return self.device.wait(max(1, until - now))

    def run_until(self, condition, timeout_ns=None):
        """Make progress until ``condition()`` holds.

        Raises
        ------
        TimeoutError
        """
        deadline = None if timeout_ns is None else self.device.now_ns() + timeout_ns
        while True:
            busy = self.progress()
            if condition():
                return
            now = self.device.now_ns()
            if deadline is not None and now >= deadline:
                raise TimeoutError(f"nothing came within {timeout_ns} ns")
            if not busy:
                self.wait(1_000_000 if deadline is None else deadline - now)

    def drain_transmit(self, qp, timeout_ns=100_000_000):
        """Wait until no descriptor of ``qp`` is in the card."""
        if qp.sender is not None:
            qp.sender.abandon()
            self.run_until(lambda: not qp.sender.in_card, timeout_ns)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Stop the card and give the memory back. QPs and MRs must be closed before."""
        if not self.open:
            return
        self.open = False
        self.write_register("control", 0)
        for ring in self.rings.values():
            ring.close()
        self.read_register("status")  # everything posted before has arrived
        self.nic.close()
        self.knitting.close()
        self.device.free(self._status)
