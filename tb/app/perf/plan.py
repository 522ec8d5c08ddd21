"""What a test of bandwidth or latency does: its name, and its settings."""

from dataclasses import dataclass

from weft.driver.terms.enums import SendFlags, WROpcode
from weft.driver.verbs.qp_attr import RD_ATOMIC_MAX
from weft.tb.app.perf.options import ATOMIC_TYPES

ATOMIC_BYTES = 8
SIZE_LOG2_MAX = 23           # of all sizes, as perftest has them
PEAK_ITERATIONS = 20_000     # with more there is no peak, as in perftest
CQ_MODERATION, MODERATED_BYTES = 100, 8192    # longer messages complete one by one
ATOMICS = dict(zip(ATOMIC_TYPES, (WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_CMP_AND_SWP), strict=True))
OPCODES = {"write": WROpcode.RDMA_WRITE, "send": WROpcode.SEND, "read": WROpcode.RDMA_READ}
TITLES = {"write": "RDMA_Write", "send": "Send", "read": "RDMA_Read", "atomic": "Atomic"}
COMMANDS = tuple(f"{verb}_{what}" for verb in TITLES for what in ("bw", "lat"))


@dataclass(frozen=True)
class Plan:
    """Settings of one test, named as in perftest.

    Attributes
    ----------
    command : str
        Of :data:`COMMANDS`.
    sizes : list of int
        Bytes of a message, one after the other.
    iterations : list of int
        Messages of each QP, for each size; ignored with a duration.
    duration_ns : int
        Simulated time in which messages are counted; 0: no limit.
    qps, mtu, tx_depth, rx_depth, post_list, cq_mod, inline_size, outs : int
        ``cq_mod`` 0 stands for what suits the size.
    bidirectional, events : bool
    atomic_type : str
        Of :data:`ATOMICS`.
    timeout : int
        The QPs' attribute.
    """

    command: str
    sizes: list
    iterations: list
    duration_ns: int = 0
    qps: int = 1
    mtu: int = 4096
    tx_depth: int = 128
    rx_depth: int = 512
    post_list: int = 1
    cq_mod: int = 0
    inline_size: int = 0
    outs: int = RD_ATOMIC_MAX
    bidirectional: bool = False
    events: bool = False
    atomic_type: str = "FETCH_AND_ADD"
    timeout: int = 14

    @property
    def verb(self):
        return self.command.partition("_")[0]

    @property
    def is_bandwidth(self):
        return self.command.endswith("_bw")

    @property
    def opcode(self):
        return ATOMICS[self.atomic_type] if self.verb == "atomic" else OPCODES[self.verb]

    @property
    def fetches(self):
        """Data comes back: reads and atomics."""
        return self.verb in ("read", "atomic")

    @property
    def slot_bytes(self):
        """Room for a message, with an address that atomics can have."""
        return -(-max(self.sizes) // 64) * 64

    def moderation(self, size):
        """So many requests have one completion; a posted list has one."""
        if self.post_list > 1:
            return self.post_list
        usual = 1 if size > MODERATED_BYTES or self.fetches else min(CQ_MODERATION, max(1, self.tx_depth // 2))
        return min(self.cq_mod or usual, self.tx_depth)

    def flags(self, size, *, signaled=True):
        """Of a request of so many bytes."""
        inline = size <= self.inline_size and not self.fetches
        return (SendFlags.INLINE if inline else SendFlags(0)) | (SendFlags.SIGNALED if signaled else SendFlags(0))

    @property
    def title(self):
        """As in perftest's banner."""
        words = [TITLES[self.verb], self.atomic_type if self.verb == "atomic" else "",
                 "Bidirectional" if self.bidirectional else "", "Post List" if self.post_list > 1 else "",
                 "BW" if self.is_bandwidth else "Latency", "Test"]
        return " ".join(word for word in words if word)
