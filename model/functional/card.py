"""Functional card on plain Python objects: registers, rings, commands, and both data paths.

The receive path takes no time. The transmit path sends one frame at a time at ``line_gbps``: raw frames first, then
retransmissions, then new work, in turn with packets that the pacer lets go. A host thus sees rings fill and drain.
"""

import random
from collections import Counter, deque

from weft.hdl.contract import abi, params

from .builder import NodeBuilder
from .node_list import NodeList
from .pacer import Pacer
from .receive_path import ReceivePath
from .rings import CardRings
from .tables import Tables
from .transmit_path import TransmitPath

Ring = abi.Ring


class FunctionalCard:
    """Card without latencies.

    Parameters
    ----------
    memory : HostMemory
    loop : EventLoop
    send_frame : callable(frame)
        Transmits a frame on the line: bytes, or a :class:`~weft.model.functional.data_frame.DataFrame`.
    interrupt : callable(vector)
    preset : str or CardParams
        Card sizes, or their name.
    line_gbps : float
    seed : hashable
        With a seed, the order of reports from different blocks is random within the limits of the hardware.
    checks_driver : bool
        A descriptor that no driver writes is an AssertionError. Otherwise it is dropped, as by the gateware.

    Attributes
    ----------
    counters : Counter
        By the names of ``abi.COUNTERS``.
    enabled : bool
        The driver lets the card send and receive.
    found_by_probe : list of (qpn, psn, length)
        Losses that only a probe revealed: holes of a window, and residue of nodes.
    pacer : Pacer or None
    """

    rings_type, transmit_type, receive_type, list_type = CardRings, TransmitPath, ReceivePath, NodeList
    pacer_type = Pacer

    def __init__(self, memory, loop, send_frame, interrupt, *, preset="test", line_gbps=100.0, seed=None,
                 checks_driver=True):
        self.params = params.preset(preset) if isinstance(preset, str) else preset
        self.memory, self.loop, self.send_frame = memory, loop, send_frame
        self.interrupt = interrupt
        self.line_gbps, self.checks_driver = line_gbps, checks_driver
        self.random = random.Random(f"card {seed}") if seed is not None else None
        self._reset()

    def _reset(self):
        self.counters = Counter()
        self.found_by_probe = []
        self.registers = {r.name: r.reset for r in abi.REGISTERS if r.access is abi.Access.RW}
        self.rings = self.rings_type(self)
        self.tables = Tables(self)
        self.builder = NodeBuilder(self.params.builder_slots)
        self.qps = {}  # qpn -> QpIncarnation
        self.enabled, self.mac, self.ip = False, 0, 0
        self.pacer = self.pacer_type(self.params.pace_descriptors) if self.params.pace_descriptors else None
        self.transmit_path, self.receive_path = self.transmit_type(self), self.receive_type(self)
        self.backlog = deque()  # reports that wait for space in the ring

    # ----------------------------------------------------------------------------------- registers

    def read(self, offset):
        """Return the value of a register."""
        if abi.COUNTER_BASE <= offset < abi.COUNTER_BASE + 8 * len(abi.COUNTERS):
            name = abi.COUNTERS[(offset - abi.COUNTER_BASE) // 8][0]
            return self.counters[name] >> (32 if offset % 8 else 0)
        name = _NAME_AT.get(offset)
        p = self.params
        fixed = {
            "magic": abi.MAGIC,
            "version": abi.VERSION[0] << 24 | abi.VERSION[1] << 16 | abi.VERSION[2],
            "cap_tables": p.qpn_width | p.mr_width << 8 | p.pte_width << 16,
            "cap_adamap": p.window_bits | p.cache_entries << 16,
            "cap_misc": p.knit_extents | p.msix_vectors << 8 | p.prefetch_depth_max << 16 | p.extent_blocks_log2 << 24,
            "cap_transmit": p.inline_bytes | p.pace_descriptors << 16,
            "status": abi.REGISTER["status"].reset,
            "time_ns": int(self.loop.now_ns),
        }
        if name in fixed:
            return fixed[name]
        return self.registers.get(name, self.rings.read_register(name))

    def push(self, offset, data):
        """Process a host write of a whole descriptor window."""
        self.rings.pushed((offset - abi.PUSH_BASE) // abi.BLOCK_BYTES, data)
        self.pump()

    def write(self, offset, value):
        """Process a host write to a register, or to a part of a descriptor window."""
        name = _NAME_AT.get(offset)
        if abi.PUSH_BASE <= offset < abi.PUSH_END:
            self.rings.pushed((offset - abi.PUSH_BASE) // abi.BLOCK_BYTES)
        if name == "control" and value & 2:
            self._reset()
        elif name == "link_doorbell":
            self._link(abi.LINK_DOORBELL.unpack(value.to_bytes(8, "little")))
        elif name == "cum_doorbell":
            word = abi.CUM_DOORBELL.unpack(value.to_bytes(8, "little"))
            incarnation = self._incarnation(word.qpn, word.generation)
            if incarnation:
                cum = incarnation.window.cum
                incarnation.window.cum = cum + (word.psn - cum + (1 << 31)) % (1 << 32) - (1 << 31)
        elif name in _PACING:
            self._pace(*_PACING[name], value)
        elif name in self.registers:
            self.registers[name] = value
            self.enabled = bool(self.registers["control"] & 1)
            self.rings.written(name, value)
        elif name is not None:
            self.rings.doorbell(name, value)
        self.pump()

    def _incarnation(self, qpn, generation):
        incarnation, entry = self.qps.get(qpn), self.tables.qps.get(qpn)
        return incarnation if incarnation and entry.generation % (1 << abi.GENERATION_BITS) == generation else None

    def _link(self, word):
        incarnation = self._incarnation(word.qpn, word.generation)
        if incarnation:
            self.counters["nodes_linked"] += word.nodes
            incarnation.matcher.link(word.nodes, self.tables.line(word.block))

    def _pace(self, layout, method, value):
        """Process a doorbell of the pacer; one for a QP that does not exist has no effect."""
        word = layout.unpack(value.to_bytes(8, "little"))
        if self.pacer is not None and word.qpn in self.qps:
            method(self.pacer, word, self.loop.now_ns)

    def pump(self):
        """Process the pending work of the rings."""
        while (command := self.rings.peek(Ring.COMMAND)) is not None:
            if not self.rings.space(Ring.RESPONSE):
                break
            self.rings.put(Ring.RESPONSE, self.tables.command(abi.COMMAND.unpack(command)))
            self.rings.finish(Ring.COMMAND)
        while self.backlog and self.rings.space(Ring.META_REPORT):
            self.rings.put(Ring.META_REPORT, self.backlog.popleft())
        if self.enabled:
            self.transmit_path.start()

    # ------------------------------------------------------------------------- shared by both paths

    def receive(self, frame):
        """Process a frame from the line."""
        self.receive_path.receive(frame)

    def refuse(self, reason):
        """Count a drop."""
        self.counters[f"drop_{reason.name.lower()}"] += 1

    def report(self, entry, mark=False):
        """Write a META_REPORT entry, or keep it until the ring has space; for ``mark`` see :meth:`CardRings.put`."""
        self.counters["reports"] += 1
        if self.backlog or not self.rings.space(Ring.META_REPORT):
            self.backlog.append(entry)
        else:
            self.rings.put(Ring.META_REPORT, entry, mark)


_PACING = {"rate_doorbell": (abi.RATE_DOORBELL, Pacer.set_rate),
           "limit_doorbell": (abi.LIMIT_DOORBELL, Pacer.set_limit)}
_NAME_AT = {r.offset: r.name for r in abi.REGISTERS}
