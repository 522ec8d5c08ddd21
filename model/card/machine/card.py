"""The card in time whose pipelines are machine code, for its driver and its line the same as the one in Python."""

import math

from weft.hdl.contract import abi, wire

from ..card import TimedCard
from ..receive import TimedReceivePath
from ..rings import TimedRings
from . import run
from .cells import cell
from .host_side import CompiledPcie
from .machine import Machine
from .state import CARD, DATA_LANE, RAW_LANE
from .tables import CompiledTables
from .transmit_path import CompiledTransmitPath

Ring = abi.Ring
_RINGS = {Ring.SEND: "ready0", Ring.RETRANSMIT: "ready1", Ring.NIC_TX: "raw_ready"}
_AT = {name: at for at, name in enumerate(CARD.names)}
_COUNTED = [(name, _AT[name]) for name in (
    "tx_packets", "tx_retransmissions", "tx_bytes", "rx_frames", "rx_packets", "rx_bytes")]
_SLOW, _LINE = _AT["slow"], _AT["compiled_line"]
_KINDS = [(kind, _AT[f"sent{at}"], _AT[f"lost{at}"]) for at, kind in enumerate((
    wire.Opcode.WRITE_ONLY, wire.Opcode.WRITE_ONLY_IMM, wire.Opcode.RETX_WRITE, wire.Opcode.RETX_WRITE_IMM))]
RING_OF_JOB = (Ring.NIC_TX, Ring.SEND, Ring.RETRANSMIT)


class CompiledRings(TimedRings):
    """:class:`TimedRings` that let the pipelines see how many descriptors are there."""

    def written(self, name, value):
        super().written(name, value)
        self.show()

    def take(self, ring):
        entry = super().take(ring)
        self.show()
        return entry

    def show(self):
        """Tell the pipelines."""
        numbers = self.card.cells.numbers
        for ring, name in _RINGS.items():
            numbers[_AT[name]] = len(self._ready[ring])


class CompiledReceivePath(TimedReceivePath):
    """:class:`TimedReceivePath` of the packets that are not as they should be."""

    _mac_free, _window_free = cell(CARD, "mac_free"), cell(CARD, "window_free")

    def __init__(self, card):
        self.cells = card.cells
        super().__init__(card)

    def judge(self, frame):
        super().judge(frame)
        self.card.refresh()

    def _judged_at(self, read, asked):
        return run.judged_at(self.card.machine.table, self.card.number, read, asked)

    @property
    def waits(self):
        """Whether every packet is Python's for now."""
        registers = self.card.registers
        return bool(self._waiting or self._stuck() or not registers["control"] & 1 or registers["host_qpns"])


class CompiledCard(TimedCard):
    """:class:`TimedCard`, a part of a :class:`Machine`.

    Attributes
    ----------
    line : Link or None
        Where its frames go, if that is simple enough. Its counters are right whenever the loop does not run.
    """

    rings_type, transmit_type, receive_type = CompiledRings, CompiledTransmitPath, CompiledReceivePath
    tables_type = CompiledTables
    number = None

    def _new_pcie(self):
        return CompiledPcie(self.loop, self.timing, self._host, self._seed, self)

    def _reset(self):
        if self.number is None:
            self.machine = Machine.of(self.loop)
            self.cells = self.line = self.peer = None
            self.number = self.machine.add(self)
        else:
            self.machine.forget(self.number)
        super()._reset()
        self._begin()

    def bind(self, cells):
        """The card's numbers are in other arrays."""
        self.cells = cells
        if self.number is not None:
            self.receive_path.cells = cells
            self.pcie.bind(cells)
            self.tables.bind()
            self.transmit_path.bind()

    def _begin(self):
        """Numbers of the card that stay."""
        card, timing, host, params = (self.machine.w.card[self.number], self.timing, self.pcie.host, self.params)
        share = max(params.bulk_tags // 8, 1)
        for lane, free in ((DATA_LANE, params.bulk_tags - share), (RAW_LANE, share)):
            self.machine.w.lane[self.number, lane].free = free
        for name in ("pcie_bytes_per_ns", "pcie_hop", "check", "payload", "raw_payload", "send", "retire", "retire_raw",
                     "room", "judge", "asked", "place"):
            setattr(card, name, getattr(timing, name))
        card.read_latency, card.read_jitter = host.read_latency_ns, host.read_jitter
        card.read_tail, card.read_tail_ns = host.read_tail, host.read_tail_ns
        card.max_payload, card.split = host.max_payload_bytes, host.split_completions
        card.write_header, card.completion_header = timing.write_header_bytes, timing.completion_header_bytes
        card.message_header, card.merge_turn = timing.message_header_bytes, RAW_LANE
        card.pace, card.trusted, card.gbps = self.pcie.pace, 1, self.line_gbps
        card.next_turn = card.look_next = card.merge_next = math.inf
        card.most = min(params.bulk_slot_bytes, host.max_read_bytes)
        card.tx_places, card.rx_beats = params.tx_buffer_beats, params.rx_buffer_beats
        card.qpn_width = params.qpn_width
        self.pcie.refill()
        if self.line:
            self._line_numbers()

    # --------------------------------------------------------------------------------------- its line

    def plugged(self, function):
        """All frames go through Python."""
        self.line, self.cells.numbers[_LINE] = None, False

    def _line_numbers(self):
        card = self.machine.w.card[self.number]
        card.loss, card.delay, card.peer = self.config.loss, self.config.delay_ns, self.peer.number
        self.line.random.fill()
        self.look_at_line()

    # ------------------------------------------------------------------------ between Python and machine code

    def pages_go(self, frames):
        self.tables.forget_pages(frames)

    def descriptors(self, ring):
        self.rings.show()
        super().descriptors(ring)

    def write(self, offset, value):
        super().write(offset, value)
        self.refresh()

    def report(self, entry, mark=False):
        super().report(entry, mark)
        self.refresh()

    def refresh(self):
        """Whether the pipelines may take packets."""
        self.cells.numbers[_SLOW] = self.receive_path.waits or self.watched()

    def look_at_line(self):
        """Whether the pipelines may send to the line: its owner changed it."""
        if link := self.line:
            self.cells.numbers[_LINE] = link.ahead and link.drop is None and link.config is self.config

    def watched(self):
        """Whether somebody looks at every write."""
        memory = self.memory.watched
        return bool(memory.dma_watchers or memory.dma_taps)

    @property
    def counters(self):
        """As :class:`FunctionalCard` has them, with what the pipelines have counted."""
        counters, numbers = self._counters, self.cells.numbers
        for name, at in _COUNTED:
            if numbers[at]:
                counters[name] += numbers[at]
                numbers[at] = 0
        return counters

    @counters.setter
    def counters(self, counters):
        self._counters = counters

    def line_count(self):
        """What the pipelines counted on the line goes to the link's counters."""
        numbers = self.cells.numbers
        for kind, sent, lost in _KINDS:
            if numbers[sent]:
                self.line.sent[kind] += numbers[sent]
                if numbers[lost]:
                    self.line.lost[kind] += numbers[lost]
                numbers[sent] = numbers[lost] = 0

    def finished(self, ring):
        """A descriptor is done with."""
        self.rings.finish(RING_OF_JOB[ring])

    def refill(self):
        """More random numbers."""
        self.pcie.refill()
        if self.line:
            self.line.random.fill()
