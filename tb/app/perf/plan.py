"""Name and settings of a bandwidth or latency test."""

from dataclasses import dataclass

from weft.driver.terms.enums import SendFlags, WROpcode
from weft.driver.verbs.qp_attr import RD_ATOMIC_MAX
from weft.tb.app.perf.options import ATOMIC_TYPES

ATOMIC_BYTES = 8
SIZE_LOG2_MAX = 23           # largest of all sizes, as in perftest
PEAK_ITERATIONS = 20_000     # no peak for more iterations, as in perftest
CQ_MODERATION, MODERATED_BYTES = 100, 8192    # longer messages have one completion each
ATOMICS = dict(zip(ATOMIC_TYPES, (WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_CMP_AND_SWP), strict=True))
OPCODES = {"write": WROpcode.RDMA_WRITE, "send": WROpcode.SEND, "read": WROpcode.RDMA_READ}
TITLES = {"write": "RDMA_Write", "send": "Send", "read": "RDMA_Read", "atomic": "Atomic"}
COMMANDS = tuple(f"{verb}_{subject}" for verb in TITLES for subject in ("bw", "lat"))


@dataclass(frozen=True)
class Plan:
    """Settings of one test, named as in perftest."""

    command: str                # of COMMANDS
    sizes: list[int]            # bytes of the messages, in the order of the test
    iterations: list[int]       # messages of each QP, for each size; ignored with a duration
    duration_ns: int = 0        # simulated time in which messages are counted; 0: no limit
    qps: int = 1
    mtu: int = 4096
    tx_depth: int = 128
    rx_depth: int = 512
    post_list: int = 1
    cq_mod: int = 0             # 0: the default of the size
    inline_size: int = 0
    outs: int = RD_ATOMIC_MAX
    bidirectional: bool = False
    events: bool = False
    atomic_type: str = "FETCH_AND_ADD"      # of ATOMICS
    timeout: int = 14           # attribute of the QPs

    @property
    def verb(self) -> str:
        return self.command.partition("_")[0]

    @property
    def is_bandwidth(self) -> bool:
        return self.command.endswith("_bw")

    @property
    def opcode(self) -> WROpcode:
        return ATOMICS[self.atomic_type] if self.verb == "atomic" else OPCODES[self.verb]

    @property
    def fetches(self) -> bool:
        """True if requests return data: reads and atomics."""
        return self.verb in ("read", "atomic")

    @property
    def slot_bytes(self) -> int:
        """Size of the memory of a message, aligned for atomics."""
        return -(-max(self.sizes) // 64) * 64

    def memory(self, side: str) -> tuple[str, ...]:
        """Return the memory of a host: ``source`` if data leaves it, ``target`` if data arrives there."""
        if self.bidirectional or not self.is_bandwidth and not self.fetches:
            return ("source", "target")
        return ("target",) if (side == "a") == self.fetches else ("source",)

    def moderation(self, size: int) -> int:
        """Return the number of requests per completion; a posted list has one completion."""
        if self.post_list > 1:
            return self.post_list
        usual = 1 if size > MODERATED_BYTES or self.fetches else min(CQ_MODERATION, max(1, self.tx_depth // 2))
        return min(self.cq_mod or usual, self.tx_depth)

    def flags(self, size: int, *, signaled: bool = True) -> SendFlags:
        """Return the send flags of a request of ``size`` bytes."""
        inline = size <= self.inline_size and not self.fetches
        return (SendFlags.INLINE if inline else SendFlags(0)) | (SendFlags.SIGNALED if signaled else SendFlags(0))

    @property
    def title(self) -> str:
        """Title in perftest's banner."""
        words = [TITLES[self.verb], self.atomic_type if self.verb == "atomic" else "",
                 "Bidirectional" if self.bidirectional else "", "Post List" if self.post_list > 1 else "",
                 "BW" if self.is_bandwidth else "Latency", "Test"]
        return " ".join(word for word in words if word)
