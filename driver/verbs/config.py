"""Settings of a card and its driver."""

from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Annotated

from weft.hdl.contract import abi, wire

from ..connection.connection import ResponseTimeout
from ..knitting.buffer import EXTENT_BYTES, QUOTA_ALPHA
from ..protocol.segment import CHUNK_BYTES
from ..receive.hole_list import WAITING_RUNS_MAX
from ..send.choice import check_algorithm
from ..terms.checks import Range, between, check_ranges
from ..terms.errors import InvalidValue

_WORD, _LONG = (1 << 32) - 1, 1 << 62


@dataclass
class ContextConfig:
    """Settings of a card and its driver.

    Attributes
    ----------
    ring_log2 : int or dict of Ring to int
        log2 of the ring depths.
    nic_slot_log2 : int
        log2 of the bytes of a raw-frame slot.
    reorder_distance, retransmit_slack, node_age_ns, prefetch_depth, prefetch_watermark : int
        See the registers of those names.
    probe_timeout_ns : int
        Idle time before a tail probe: two round trips and a margin.
    chunk_bytes : int
        Largest payload of one descriptor; a longer write takes several.
    extent_bytes, max_extents, knitting_alpha
        See :class:`~weft.driver.knitting.buffer.KnittingBuffer`.
    waiting_runs_max : int
        See :class:`~weft.driver.receive.hole_list.HoleList`.
    tx_poll_ns : int
        Polling interval of the status in memory while the card holds descriptors; no interrupt reports their
        completion. Waits of at most this time request no interrupt.
    silence_ns : int
        If a caller waits for the card and the card reports nothing for this time, the driver reads the status register,
        because the card may be gone.
    command_timeout_ns : int
        Longest wait for the response to a command, after which it raises
        :class:`~weft.driver.queue.command.CommandTimeout`. Its objects belong to the card until the response or a
        reset. A simulated card in another process of a loaded machine needs more than the default.
    reset : bool
        Reset the card when the context opens it.
    path_search : bool
        A QP whose probes go unanswered changes its UDP source port, and so its path: see
        :class:`~weft.driver.send.path_search.PathSearch`.
    congestion : str
        Congestion control of each QP that does not choose another one: ``none``, ``swift``, ``dcqcn`` or
        ``rate-match``. See
        :class:`~weft.driver.send.flow_limit.FlowLimit`.
    cnp_interval_ns : int
        Least time between two congestion notifications to the peer of a QP; the peer's value is taken to be the same.
    keep_qp_num : bool
        A QP keeps its number over RESET, as in the verbs. Then only the PSN distinguishes packets of an earlier
        incarnation that are still in flight from packets of the current one. Otherwise each incarnation has a different
        number.
    pfc_priority : int or None
        Priority of all frames of the card for priority-based flow control (IEEE 802.1Qbb), 0 to 7. The card requests a
        pause from its peer when its receive buffer runs full, and pauses when the peer requests it. None: neither.
    pfc_quanta : int
        Pause time of one request, in units of 512 bit times.
    time_wait_qps : int
        Number of the most recently destroyed QPs that stay on the card, so that their peers can still obtain the last
        acknowledgement if it was lost; at most a quarter of all QPs. See
        :class:`~weft.driver.engine.time_wait.TimeWait`.
    cm_timeout : ResponseTimeout
        Response time-out of connection management, and number of retries.
    random : random.Random
        Source of first PSNs and key tags; by default the system's, which is unpredictable.
    """

    ring_log2: int | dict[abi.Ring, int] = 6
    nic_slot_log2: Annotated[int, Range(9, 14)] = 11
    reorder_distance: Annotated[int, Range(1, _WORD)] = 1
    retransmit_slack: Annotated[int, Range(0, _WORD)] = 1
    node_age_ns: Annotated[int, Range(0, abi.NODE_AGE_MAX_NS)] = 2000
    prefetch_depth: Annotated[int, Range(1, _WORD)] = 4
    prefetch_watermark: Annotated[int, Range(1, _WORD)] = 4
    probe_timeout_ns: Annotated[int, Range(1, _LONG)] = 50_000
    chunk_bytes: Annotated[int, Range(1, abi.CHUNK_MAX)] = CHUNK_BYTES
    extent_bytes: Annotated[int, Range(abi.BLOCK_BYTES, _LONG)] = EXTENT_BYTES
    max_extents: Annotated[int, Range(1, _WORD)] = 8
    knitting_alpha: float = QUOTA_ALPHA
    waiting_runs_max: Annotated[int, Range(1, _WORD)] = WAITING_RUNS_MAX
    tx_poll_ns: Annotated[int, Range(1, _LONG)] = 2_000
    silence_ns: Annotated[int, Range(1, _LONG)] = 10_000_000
    command_timeout_ns: Annotated[int, Range(1, _LONG)] = 100_000_000
    reset: bool = True
    path_search: bool = True
    congestion: str = "none"
    cnp_interval_ns: Annotated[int, Range(0, (1 << 20) - 1)] = abi.REGISTER["cnp_interval_ns"].reset
    keep_qp_num: bool = False
    time_wait_qps: Annotated[int, Range(0, _WORD)] = 0
    pfc_priority: int | None = None
    pfc_quanta: Annotated[int, Range(1, 0xFFFF)] = 0xFFFF
    cm_timeout: ResponseTimeout = ResponseTimeout()
    random: Random = field(default_factory=SystemRandom)

    def check(self) -> None:
        """Raise ValueError or TypeError if a setting is invalid for every card."""
        check_ranges(self)
        check_algorithm(self.congestion)
        if self.pfc_priority is not None:
            between("pfc_priority", self.pfc_priority, 0, wire.PRIORITIES - 1)
        if self.extent_bytes % abi.BLOCK_BYTES:
            raise InvalidValue(f"extent_bytes is {self.extent_bytes}; it must be a multiple of {abi.BLOCK_BYTES}")
        between("cm_timeout.response_timeout", self.cm_timeout.response_timeout, 1, 31)
        between("cm_timeout.retries", self.cm_timeout.retries, 0, 15)
        if not self.knitting_alpha > 0:
            raise InvalidValue(f"knitting_alpha is {self.knitting_alpha}; it must be more than 0")

    @property
    def pfc_word(self) -> int:
        """Value of the register ``pfc``."""
        if self.pfc_priority is None:
            return 0
        return int.from_bytes(abi.PFC_WORD.pack(priority=self.pfc_priority, send=1, obey=1, quanta=self.pfc_quanta),
                              "little")

    def log2(self, ring: abi.Ring) -> int:
        """Return the log2 of the depth of a ring."""
        return self.ring_log2 if isinstance(self.ring_log2, int) else self.ring_log2.get(ring, 6)
