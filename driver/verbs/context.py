"""The open card: what belongs to it, from bring-up to close."""

import collections

from weft.hdl import abi, wire

from ..device.bringup import disable_card, enable_card, reset_card, set_registers
from ..device.capabilities import Capabilities, IncompatibleCard, read_register
from ..engine.context_engine import ContextEngine
from ..engine.qp_table import QpTable
from ..knitting.buffer import KnittingBuffer
from ..memory.page_table import RangeAllocator
from ..queue.command import CommandError, CommandQueue
from ..queue.meta_report import ReportWorker
from ..queue.ring import CardToHostRing, HostToCardRing
from ..queue.simple_nic import SimpleNic, control_extension
from ..queue.transmit_turns import TransmitTurns, enough_bytes
from .config import ContextConfig

__all__ = ["Context", "ContextConfig", "IncompatibleCard"]
Ring = abi.Ring


class Context(ContextEngine):
    """An open card.

    Parameters
    ----------
    device : Device
    mac, ip : int
        Addresses of the card.
    config : ContextConfig

    Attributes
    ----------
    capabilities : Capabilities
    qps : QpTable
    mrs : dict of int to MR
        Registered memory by index.
    raw_frame_handlers : list of callable(frame, entry)
        Get the raw frames that are no control frames of a QP.

    Raises
    ------
    IncompatibleCard
        If magic or major version differ.
    """

    def __init__(self, device, *, mac, ip, config=None):
        self.device, self.mac, self.ip = device, mac, ip
        self.config = config = config or ContextConfig()
        self.raw_frame_handlers = []
        self.counts = collections.Counter()
        self.open = False
        self.capabilities = can = Capabilities.of(device)
        if config.reset:
            reset_card(device)
        self.rings = {
            r: (HostToCardRing if r in abi.HOST_TO_CARD else CardToHostRing)(device, r, config.log2(r)) for r in Ring
        }
        self._status = device.alloc(abi.BLOCK_BYTES, align=abi.BLOCK_BYTES)
        self.nic = SimpleNic(device, self.rings[Ring.NIC_TX], self.rings[Ring.NIC_RX], slot_log2=config.nic_slot_log2)
        self.commands = CommandQueue(device, self.rings[Ring.COMMAND], self.rings[Ring.RESPONSE])
        self.qps = QpTable(can.max_qp)
        self.reports = ReportWorker(self.rings[Ring.META_REPORT], self.qps.find)
        self._turns = TransmitTurns(self.rings, self.qps.mark_active,
                                    enough_bytes=enough_bytes(config.tx_poll_ns))
        self._pds = 0
        self.mrs = {}
        self.mr_indices = RangeAllocator(can.max_mr)
        self.pte_ranges = RangeAllocator(can.max_pte)
        self.last_key_tag = {}
        if config.extent_bytes > can.max_extent_bytes:
            raise ValueError(f"extent_bytes is {config.extent_bytes}; this card takes {can.max_extent_bytes} or less")
        self._start()
        self.knitting = KnittingBuffer(
            device,
            self._announce_extent,
            extent_bytes=config.extent_bytes,
            max_extents=min(config.max_extents, can.max_extents),
            alpha=config.knitting_alpha,
        )
        self.open = True
        self.run_until(lambda: not self.knitting.changing, self.commands.timeout_ns)

    # --------------------------------------------------------------------------------------- start

    def _start(self):
        """Tell a card that is out of reset everything but what lies in its tables."""
        self.device.enable_interrupts(max(abi.VECTOR.values()) + 1)
        set_registers(self.device, self.config, self.capabilities, status_block=self._status.physical(0))
        self.nic.start()
        for ring in self.rings.values():
            ring.enable()
        enable_card(self.device)
        self.commands.call(abi.CommandOpcode.SET_NETWORK, mac=self.mac, ip=self.ip)

    def reset(self):
        """Reset the card, whatever is in flight, and bring it up again.

        All QPs go to ERR and their requests are flushed; a QP has to be reset and connected anew. Memory stays
        registered under its keys. Commands that nobody waits for are forgotten.
        """
        self.check_open()
        reset_card(self.device)
        for qp in self.qps:
            qp.on_card_reset()
            self.qps.remove(qp)
        self._turns.clear()
        self._status.write(0, bytes(abi.BLOCK_BYTES))
        for ring in self.rings.values():
            ring.clear()
        self.commands.forget()
        self.nic.forget()
        self._start()
        self.knitting.extents.announce_again()
        self.run_until(lambda: not self.knitting.changing, self.commands.timeout_ns)
        for mr in self.mrs.values():
            mr.install()

    def _announce_extent(self, index, address, length, done):
        def answered(response):
            if response.status is not abi.CommandStatus.OK:
                raise CommandError(abi.CommandOpcode.EXTENT_SET, response.status)
            done()

        self.commands.submit(abi.CommandOpcode.EXTENT_SET, answered, extent=index, address=address, length=length)

    def check_open(self):
        if not self.open:
            raise ValueError("the context is closed")

    # ------------------------------------------------------------------------------- small services

    def new_pd(self):
        self._pds += 1
        return self._pds

    def remove_qp(self, qp):
        """The card does not know ``qp`` any more."""
        self.qps.remove(qp)
        self._turns.remove(qp)

    def mark_active(self, qp):
        """``qp`` has something to do in the next :meth:`progress`."""
        self.qps.mark_active(qp)

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

    # ------------------------------------------------------------------------------------------ end

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Stop the card and give the memory back. QPs and MRs must be closed before."""
        if not self.open:
            return
        if self.knitting.changing:
            self.run_until(lambda: not self.knitting.changing, self.commands.timeout_ns)
        self.open = False
        disable_card(self.device)
        for ring in self.rings.values():
            ring.close()
        read_register(self.device, "status")  # everything posted before has arrived
        self.nic.close()
        self.knitting.extents.close()
        self.device.free(self._status)
