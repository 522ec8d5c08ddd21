"""Host interface of the card: registers, doorbells, rings, descriptors, the Adamap node.

The single source: gateware, driver, model, decoders and the register documentation are built
from this module. Standard library only. Everything here is little-endian.
"""

import enum
from dataclasses import dataclass

from .layout import Field, Layout, Octets
from .wire import QPN_BITS

VERSION = (0, 2, 0)
MAGIC = int.from_bytes(b"WEFT", "little")
PCI_VENDOR_ID = 0x1234
PCI_DEVICE_ID = 0x5746
BAR_BYTES = 1 << 16
BLOCK_BYTES = 64          # a descriptor, an Adamap node, a read line
PTE_BYTES = 8
PAGE_4K, PAGE_2M = 1 << 12, 1 << 21
PAGE_LINES = PAGE_4K // BLOCK_BYTES


def damage(block: Octets) -> int:
    """Return the XOR of the 16-bit words of a block: 0 if it is unchanged since its check word was set."""
    word, bits = int.from_bytes(block, "little"), 4 * len(block)
    while bits >= 16:
        word ^= word >> bits
        bits //= 2
    return word & 0xFFFF


def sealed(entry: bytes) -> bytes:
    """Return an entry of a host-to-card ring with its check word, the last one, which must be 0 before."""
    return entry[:-2] + damage(entry).to_bytes(2, "little")


def _host(name: str, doc: str, *fields: tuple) -> Layout:
    return Layout(name, doc, [Field(*f) for f in fields], size_bytes=BLOCK_BYTES)


# ---------------------------------------------------------------------------------------- rings

class Ring(enum.IntEnum):
    """Rings, in the order of their register blocks."""

    SEND = 0          # new work
    RETRANSMIT = 1    # retransmissions, strict priority over SEND
    COMMAND = 2
    NIC_TX = 3        # raw frames out
    RESPONSE = 4      # responses to COMMAND
    META_REPORT = 5
    NIC_RX = 6        # raw frames in


HOST_TO_CARD = (Ring.SEND, Ring.RETRANSMIT, Ring.COMMAND, Ring.NIC_TX)
CARD_TO_HOST = (Ring.RESPONSE, Ring.META_REPORT, Ring.NIC_RX)
RING_LOG2_MAX = 15
# Bit 0 of every 64-byte entry is its phase: 1 in the ring's first lap, 0 in the second, and so on.
# An entry is valid when its phase is that of the reader's lap. Indices are free running, one bit
# wider than the ring's log2.
VECTOR = {Ring.RESPONSE: 0, Ring.META_REPORT: 1, Ring.NIC_RX: 2}  # MSI-X vector of each card-to-host ring
VECTOR_STATUS = 3         # MSI-X vector of the status block


# ------------------------------------------------------------------------------------ registers

class Access(enum.Enum):
    """Access of the host to a register."""

    RO = "ro"        # hardware drives it
    RW = "rw"        # host writes, hardware reads
    DOORBELL = "db"  # a write is an event with a value; reads as zero unless hardware drives it


@dataclass(frozen=True)
class Register:
    """A register of BAR0: byte offset, width in bits (32 or 64), access, reset value, description."""

    name: str
    offset: int
    access: Access
    doc: str
    width: int = 32
    reset: int = 0


_RO, _RW, _DB = Access.RO, Access.RW, Access.DOORBELL
RING_BASE, RING_STRIDE = 0x200, 0x20
COUNTER_BASE = 0x1000
MSIX_TABLE_OFFSET = 0x8000
# A page of windows of 64 bytes for each of PUSH_RINGS. A write of a whole descriptor of the ring, in one transaction,
# to the window of its index modulo the number of windows acts as its doorbell; a card that has read all descriptors
# before takes it from there without a read of host memory. Any other write into the window is the doorbell only. The
# descriptor must be in the ring in either case.
PUSH_BASE, PUSH_WINDOWS = 0x4000, 64
PUSH_RINGS = (Ring.SEND, Ring.NIC_TX)
PUSH_PAGE_BYTES = PUSH_WINDOWS * BLOCK_BYTES
PUSH_END = PUSH_BASE + len(PUSH_RINGS) * PUSH_PAGE_BYTES
MSIX_PBA_OFFSET = 0xC000

NODE_AGE_MAX_NS = 1 << 23
MARK_STEP_NS = 256
REGISTERS = [
    Register("magic", 0x000, _RO, "`WEFT` in ASCII.", reset=MAGIC),
    Register("version", 0x004, _RO, "Interface version: major in bits 31:24, minor in 23:16, patch in 15:0.",
             reset=VERSION[0] << 24 | VERSION[1] << 16 | VERSION[2]),
    Register("cap_tables", 0x008, _RO, "log2 of QPs in bits 7:0, of MRs in 15:8, of page-table entries in 23:16."),
    Register("cap_adamap", 0x00C, _RO, "Window bits in 15:0, head-cache entries in 31:16."),
    Register("cap_misc", 0x010, _RO,
             "Knitting extents in 7:0, MSI-X vectors in 15:8, largest prefetch depth in 23:16, n in 31:24: an extent "
             "has less than 2^n - 1 blocks."),
    Register("cap_transmit", 0x014, _RO, "Largest inline payload of a WORK_INLINE, bytes, in 7:0, also 0 without "
             "NIC_TX_INLINE; descriptors that the pacer holds in 31:16. 0: no support."),
    Register("control", 0x020, _RW,
             "Bit 0: receive and transmit enabled. Bit 1: reset of everything but the PCIe side, while set."),
    Register("status", 0x024, _RO,
             "Bit 0: all engines idle. Bit 1: reset finished. Bit 2: a read or write of host memory was dropped "
             "because bus mastering was disabled; all further ones are dropped until a reset.", reset=3),
    Register("time_ns", 0x028, _RO, "Nanoseconds since reset.", width=64),
    Register("status_block", 0x030, _RW,
             "Physical address of the status block, 64-byte aligned; 0: no status block.", width=64),
    Register("nic_rx_buffer", 0x038, _RW, "Physical address of the NIC_RX frame slots, one per ring entry.", width=64),
    Register("nic_rx_slot_log2", 0x040, _RW, "log2 of the bytes of a NIC_RX slot, 9 to 14.", reset=11),
    Register("host_qpns", 0x044, _RW, "QPNs whose packets go to NIC_RX with any opcode: a HOST_QPNS word."),
    Register("pfc", 0x048, _RW, "Priority-based flow control: a PFC_WORD. 0: none."),
    Register("reorder_distance", 0x050, _RW,
             "PSNs by which a packet may be late before it counts as lost, 1 to the window's bits.", reset=1),
    Register("node_age_ns", 0x054, _RW,
             "Age at which an unsealed Adamap node is sealed, nanoseconds; "
             f"more than {NODE_AGE_MAX_NS:,} count as that.", reset=2000),
    Register("retransmit_slack", 0x058, _RW,
             "Distance in RSNs from the newest one at which the head node counts as passed over.", reset=1),
    Register("prefetch_depth", 0x05C, _RW, "Nodes cached per recovering QP, 1 to the build's maximum.", reset=4),
    Register("prefetch_watermark", 0x060, _RW,
             "A fetch starts when fewer nodes than this are left in the cache.", reset=4),
    Register("cnp_interval_ns", 0x064, _RW,
             "Least time between two reports MARKED of a QP, nanoseconds, 20 bits; rounded up to a multiple of "
             f"{MARK_STEP_NS}.", reset=50_000),
    Register("link_doorbell", 0x080, _DB,
             "Nodes were linked for a QP: a LINK_DOORBELL word, one 8-byte write.", width=64),
    Register("cum_doorbell", 0x088, _DB,
             "Oldest PSN of a QP not yet acknowledged: a CUM_DOORBELL word, one 8-byte write.", width=64),
    Register("rate_doorbell", 0x090, _DB,
             "Rate of a QP's paced packets: a RATE_DOORBELL word, one 8-byte write.", width=64),
    Register("limit_doorbell", 0x098, _DB,
             "PSN at which a QP's paced packets wait: a LIMIT_DOORBELL word, one 8-byte write.", width=64),
]
for _ring in Ring:
    _at = RING_BASE + RING_STRIDE * _ring
    _n = _ring.name.lower()
    _down = _ring in HOST_TO_CARD
    REGISTERS += [
        Register(f"{_n}_base", _at, _RW, f"Physical address of the {_ring.name} ring, 64-byte aligned.", width=64),
        Register(f"{_n}_log2", _at + 8, _RW,
                 f"log2 of the entries of {_ring.name} in bits 7:0; bit 31 enables the ring. "
                 "Enabling starts both indices at zero."),
        Register(f"{_n}_prod", _at + 12, _DB if _down else _RO,
                 "Producer index." + (" A write is the doorbell." if _down else "")),
        Register(f"{_n}_cons", _at + 16, _RO if _down else _DB, "Consumer index." + ("" if _down else
                 " The host writes it; bit 31 arms the ring's interrupt, which fires once an "
                 "unconsumed entry exists.")),
    ]
REGISTER = {r.name: r for r in REGISTERS}
RING_ENABLE_BIT = 31
ARM_BIT = 31


class Reason(enum.IntEnum):
    """Reason why a packet, descriptor or command was dropped or rejected. Also the order of the `drop_*` counters."""

    OK = 0
    BAD_FRAME = 1            # marked bad by the MAC
    TRUNCATED = 2            # shorter than its headers or its IP/UDP length
    BAD_ICRC = 3
    BAD_HEADER = 4           # a fixed field or the IPv4 checksum is wrong, or the frame is for another card
    UNKNOWN_OPCODE = 5
    UNKNOWN_QP = 6           # no QP, or not ready to receive
    BAD_KEY = 7              # no such MR, or the key's tag is wrong
    OUT_OF_RANGE = 8         # beyond the MR
    NO_PERMISSION = 9        # the MR, or the QP, does not allow it
    WRONG_PD = 10            # MR and QP are of different protection domains
    LENGTH_MISMATCH = 11     # RETH length and packet length differ, or more than 4096 bytes
    STALE_GENERATION = 12    # for another incarnation of the QPN
    STALE_PSN = 13           # below the cumulative PSN
    DUPLICATE = 14           # received already; for a BITMAP node: the hole is not open
    STALE_RSN = 15           # older than the head node
    NOT_IN_NODE = 16         # PSN and RSN belong to different holes
    BUFFER_FULL = 17         # dropped at the MAC: receive buffer or report ring full
    NIC_RING_FULL = 18       # no NIC_RX slot; frames that are not for a QP of the card get at most half of them
    FRAME_TOO_LONG = 19      # longer than a NIC_RX slot, or than the card supports
    BAD_DESCRIPTOR = 20      # a descriptor with a wrong phase, opcode, QP, inline length or PMTU
    DMA_ERROR = 21           # a read completed with an error
    BAD_POINTER = 22         # next pointer outside the knitting extents
    BAD_NODE = 23            # node of another QP or generation, damaged, or with a bad encoding, count or RSN
    NOT_READY = 24           # the card is disabled
    WRONG_PEER = 25          # from another address than that of the QP's peer
    FAR_PSN = 26             # further ahead than the QP's peer may be
    NIC_BUSY = 27            # too many raw frames wait in the receive path already
    BAD_PAUSE = 28           # a MAC control frame that is no valid frame of priority-based flow control


# (name, description); 48 bits each, read as two 32-bit words at COUNTER_BASE + 8*i, low word first (it latches the high
# one).
COUNTERS = [
    ("tx_packets", "Data packets sent, retransmissions included."),
    ("tx_retransmissions", "Retransmitted packets sent."),
    ("tx_bytes", "Payload bytes sent."),
    ("tx_raw_frames", "Raw frames sent."),
    ("rx_frames", "Frames received from the MAC."),
    ("rx_packets", "Data packets accepted."),
    ("rx_retransmissions", "Retransmitted packets accepted."),
    ("rx_bytes", "Payload bytes placed."),
    ("rx_raw_frames", "Raw frames delivered."),
    ("rx_unmatched", "Of these, those matched by the driver, because the match queue was full."),
    ("rx_late_originals", "Originals received after their PSN left the window: placed, not marked."),
    ("holes", "PSNs counted as lost by the windows."),
    ("nodes_sealed", "Adamap nodes reported."),
    ("nodes_linked", "Nodes linked by the driver."),
    ("nodes_retired", "Nodes retired by the matcher."),
    ("nodes_residue", "Nodes retired with holes left."),
    ("cache_hits", "Retransmissions whose node was cached."),
    ("cache_misses", "Retransmissions that waited for a node."),
    ("match_stall_cycles", "Cycles in which a retransmission waited for a node."),
    ("prefetches", "Node fetches issued."),
    ("reports", "Meta reports written."),
    ("reports_coalesced",
     "Dropped packets without a report: an earlier report of the same QP was not consumed yet, or half of "
     "META_REPORT was taken."),
    ("window_stall_cycles", "Cycles in which the window stalled a packet."),
    ("rx_stall_cycles", "Cycles in which the receive path stalled the MAC buffer."),
    ("tx_stall_cycles", "Cycles in which the MAC stalled the transmit path."),
    ("host_refused", "Host requests to BAR0 that were completed as unsupported or dropped."),
] + [(f"drop_{_r.name.lower()}", f"Dropped: {_r.name}.") for _r in Reason if _r is not Reason.OK] + [
    ("tx_pauses", "Pauses requested from the peer, repetitions included."),
    ("rx_pauses", "Pauses of the card's priority that the peer requested or ended."),
    ("pause_cycles", "Cycles of pause, with or without a frame to hold back."),
    ("pause_storms", "Number of times that the peer's pauses began to be ignored, because there were too many."),
    ("rx_marked", "Data packets accepted that switches had marked CE."),
]
COUNTER_INDEX = {name: i for i, (name, _) in enumerate(COUNTERS)}
COUNTER_WIDTH = 48

# A QPN, on the wire and in commands, is the index of a QP in the card's table (low bits) and the generation of
# its incarnation (the rest). Doorbells, reports and nodes have the index and the low 8 bits of the generation.
GENERATION_BITS = 8


def make_qpn(index: int, generation: int, index_bits: int) -> int:
    """Return the QPN of an incarnation of the QP with this index, on a card of ``2 ** index_bits`` QPs."""
    return (generation << index_bits | index) % (1 << QPN_BITS)


def split_qpn(qpn: int, index_bits: int) -> tuple[int, int]:
    """Return (index, generation) of a QPN."""
    return qpn % (1 << index_bits), qpn >> index_bits


HOST_QPNS = Layout(
    "HOST_QPNS", "QPNs of software on the host. Their packets are checked as far as BTH and ICRC, and become frames in "
    "NIC_RX. No QP of the card has such a number.", [
        Field("first", 24, "First of a range, a multiple of its size."), Field("log2", 5, "log2 of its size, 0 to 24."),
        Field("_r0", 1), Field("qp1", 1, "QPN 1, too: management datagrams."),
        Field("ranged", 1, "There is a range.")], size_bytes=4)
HOST_QPNS_QP1 = 1


PFC_WORD = Layout("PFC_WORD", "Priority-based flow control (IEEE 802.1Qbb).", [
    Field("priority", 3, "Priority of all frames of the card."),
    Field("send", 1, "Request pauses from the peer when the receive buffer runs full."),
    Field("obey", 1, "Obey pauses of the peer."), Field("_r0", 11),
    Field("quanta", 16, "Duration to request, in 512 bit times; 0: no requests.")], size_bytes=4)


def is_host_qpn(word: int, qpn: int) -> bool:
    """Return whether a HOST_QPNS word, as a number, includes a QPN."""
    qpns = HOST_QPNS.unpack(word.to_bytes(HOST_QPNS.size_bytes, "little"))
    return bool(qpns.qp1 and qpn == HOST_QPNS_QP1 or qpns.ranged and qpn >> qpns.log2 == qpns.first >> qpns.log2)


LINK_DOORBELL = Layout("LINK_DOORBELL", "Nodes were linked at the tail of a QP's list.", [
    Field("qpn", 24, "Index of the QP."), Field("generation", 8),
    Field("nodes", 8, "Number of nodes since the last such word."),
    Field("block", 24, "Block number of the first one: its extent and, in the number of low bits given in `cap_misc`, "
          "its offset there. Used if the card has fetched all nodes linked before.")], size_bytes=8)
CUM_DOORBELL = Layout("CUM_DOORBELL", "Cumulative PSN of a QP.", [
    Field("qpn", 24, "Index of the QP."), Field("generation", 8),
    Field("psn", 32, "32-bit PSN; every older one is acknowledged.")], size_bytes=8)

PACE_SCALE = 16       # log2 of the units of `gap` in a nanosecond per byte
# Largest gap, of 0.65 Mb/s: the time of the longest packet is less than half of the pacer's clock.
PACE_GAP_MAX = 12_288 << PACE_SCALE
RATE_DOORBELL = Layout("RATE_DOORBELL", "Rate of a QP's paced packets, and whether their PSN is limited.", [
    Field("qpn", 24, "Index of the QP."),
    Field("gap", 30, f"Time of a byte on the line, frame overhead included, in 2^-{PACE_SCALE} ns. 0: no gap. The "
          f"largest one is that of {PACE_GAP_MAX >> PACE_SCALE:,} ns; a larger value counts as this."),
    Field("limited", 1, "The PSN of the newest LIMIT_DOORBELL of the QP holds."), Field("_r0", 9)], size_bytes=8)
LIMIT_DOORBELL = Layout("LIMIT_DOORBELL", "Limit of a QP's paced packets.", [
    Field("qpn", 24, "Index of the QP."), Field("_r0", 8),
    Field("psn", 32, "32-bit PSN; new packets from this one on wait, less than 2^31 ahead.")], size_bytes=8)

STATUS_BLOCK = _host("STATUS_BLOCK", "Written by the card after host-to-card rings advanced.",
    *[(f"{r.name.lower()}_cons", 32, f"Descriptors of {r.name} finished: free running.") for r in HOST_TO_CARD],
    ("_reserved", 384))


# ----------------------------------------------------------------------------- work descriptors

class WorkOpcode(enum.IntEnum):
    """Operation of a SEND or RETRANSMIT descriptor."""

    WRITE = 1
    WRITE_IMM = 2     # the last packet carries the immediate
    INLINE_DATA = 3   # no operation: payload of the next descriptor


WRITES = (WorkOpcode.WRITE, WorkOpcode.WRITE_IMM)


_CHECK = ("check", 16, "Makes the XOR of the entry's 16-bit words 0.")


def _work(name: str, doc: str, *source: tuple) -> Layout:
    """Return the layout of a write descriptor; ``source`` are the 16 bytes for its data, or their location."""
    return _host(name, doc,
        ("phase", 1, "Lap phase."),
        ("opcode", 4, "Operation.", WorkOpcode),
        ("ack_req", 1, "The chunk's last packet ends a message: the receiver reports it."),
        ("retransmit", 1, "Packets carry RSNs, counted up from `rsn`."),
        ("pmtu", 3, "IBTA enumeration, 1 (256) to 5 (4096)."),
        ("inline", 1, "It is a WORK_INLINE."),
        ("paced", 1, "The pacer takes it, and the ring does not wait for it. Not with `inline`."),
        ("ect", 1, "Packets leave as ECT(0), otherwise as Not-ECT."),
        ("_r0", 3),
        ("sqpn", 24, "Index of the local QP."),
        ("dqpn", 24, "Peer's QPN."),
        *source,
        ("remote_va", 64, "Virtual address in the peer's MR."),
        ("rkey", 32, "Remote key."),
        ("psn", 32, "PSN of the first packet."),
        ("length", 24, "Bytes; zero is one packet without payload."),
        ("rsn", 24, "RSN of the first packet."),
        ("sport", 16, "UDP source port."),
        ("imm", 32, "Immediate data."),
        ("dst_ip", 32, "Peer's address."),
        ("dst_mac", 48, "Next hop."), _CHECK)


WORK = _work("WORK", "A chunk to write to the peer.",
    ("local_va", 64, "Virtual address of the data in the local MR."), ("lkey", 32, "Local key."), ("_r1", 32))
WORK_INLINE = _work("WORK_INLINE", "A chunk with inline payload: one packet, at any remote address.",
    ("data", 128, "The first 16 bytes of payload. For more, an INLINE_DATA comes directly before it."))
INLINE_DATA = _host("INLINE_DATA",
    "The rest of the payload of the WORK_INLINE that follows. Without a match of QP and PSN neither is sent.",
    ("phase", 1, "Lap phase."),
    ("opcode", 4, "INLINE_DATA.", WorkOpcode),
    ("_r0", 11),
    ("sqpn", 24, "As in the WORK_INLINE."), ("_r1", 24),
    ("data", 384, "Bytes 16 to 63 of the payload."),
    ("psn", 32, "As in the WORK_INLINE."), ("_r2", 16), _CHECK)
CHUNK_MAX = (1 << WORK.by_name["length"].width) - 1     # bytes of one descriptor
INLINE_HEAD_BYTES = WORK_INLINE.by_name["data"].width // 8
INLINE_MAX = INLINE_HEAD_BYTES + INLINE_DATA.by_name["data"].width // 8

FRAME_MAX = 9216


class NicTxOpcode(enum.IntEnum):
    """Kind of a NIC_TX descriptor."""

    FRAME = 0         # of a frame in memory
    INLINE = 1        # it has the frame, or the first bytes of it
    DATA = 2          # no operation: the other bytes of the frame of the next descriptor


NIC_TX = _host("NIC_TX", "A raw frame to send, physically contiguous, without FCS.",
    ("phase", 1, "Lap phase."), ("opcode", 4, "FRAME, 0.", NicTxOpcode), ("_r0", 59),
    ("address", 64, "Physical address of the frame."),
    ("length", 16, f"Bytes, 14 to {FRAME_MAX}; short frames are padded to 60."), ("_r1", 48), ("_r2", 304), _CHECK)
NIC_TX_INLINE = _host("NIC_TX_INLINE", "A raw frame to send that is in the descriptor.",
    ("phase", 1, "Lap phase."), ("opcode", 4, "INLINE, 1.", NicTxOpcode), ("_r0", 11),
    ("number", 16, "Any number."),
    ("length", 16, "Bytes, 14 to 108; short frames are padded to 60."), ("_r1", 16),
    ("data", 432, "The first 54 bytes of the frame. For more, a NIC_TX_DATA comes directly before it."), _CHECK)
NIC_TX_DATA = _host("NIC_TX_DATA",
    "The other bytes of the frame of the NIC_TX_INLINE that follows. Without a match of `number` that is rejected.",
    ("phase", 1, "Lap phase."), ("opcode", 4, "DATA, 2.", NicTxOpcode), ("_r0", 11),
    ("number", 16, "As in the NIC_TX_INLINE."), ("_r1", 32),
    ("data", 432, "Bytes 54 to 107 of the frame."), _CHECK)
FRAME_HEAD_BYTES = NIC_TX_INLINE.by_name["data"].width // 8
FRAME_INLINE_MAX = FRAME_HEAD_BYTES + NIC_TX_DATA.by_name["data"].width // 8

NIC_RX = _host("NIC_RX", "A raw frame arrived in this entry's slot.",
    ("phase", 1, "Lap phase."),
    ("roce", 1, "A control frame of a QP of the card, whose ICRC is right and whose sender is the QP's peer."),
    ("host", 1, "A RoCEv2 frame for one of `host_qpns`, whose ICRC is right. Neither: any other frame."),
    ("_r0", 61),
    ("length", 16, "Bytes of the frame, without FCS."), ("_r1", 48),
    ("time_ns", 64, "Arrival time."),
    ("_r2", 320))


# ------------------------------------------------------------------------------------- commands

class CommandOpcode(enum.IntEnum):
    """Commands. The card sends one RESPONSE for each, with the same tag."""

    SET_NETWORK = 1       # mac, ip
    QP_CREATE = 2         # qpn, pd, psn, psn_guard, ip, access: the QP can receive and send
    QP_MODIFY = 3         # qpn, qp_state, access: the response comes when nothing that they forbid is in flight
    QP_DESTROY = 4        # qpn: the response comes when nothing of the QP is in flight
    MR_CREATE = 5         # mr_index, key_tag, va, length, access, pd, page_2m, pte_index
    MR_DESTROY = 6        # mr_index
    PAGE_TABLE_WRITE = 7  # pte_index, count, address: copies `count` 8-byte entries from host memory
    EXTENT_SET = 8        # extent, address (not 0), length (0: removes it)
    QP_QUERY = 9          # qpn: result0 window base, result1 holes counted, result2 nodes linked but not fetched,
                          # result3 nodes cached
    STATISTICS = 10       # address: writes all counters, 8 bytes each, in COUNTERS order, as whole 64-byte blocks


class CommandStatus(enum.IntEnum):
    """Result of a command."""

    OK = 0
    BAD_OPCODE = 1
    BAD_INDEX = 2
    BAD_VALUE = 3
    IN_USE = 4        # QP_CREATE or MR_CREATE on a used index
    DMA_ERROR = 5


class QpState(enum.IntEnum):
    """State of a QP on the card."""

    RESET = 0   # nothing is sent or received
    RTR = 2     # receives
    RTS = 3     # receives and sends
    ERR = 6     # receives nothing, sends nothing; a probe of the peer is reported, with the reason UNKNOWN_QP


class AccessFlag(enum.IntFlag):
    """MR and QP access (values of ibv_access_flags)."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8


# the QP must grant it, too
REMOTE_ACCESS = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC


COMMAND = _host("COMMAND", "A command; the fields used depend on the opcode.",
    ("phase", 1, "Lap phase."),
    ("opcode", 7, "", CommandOpcode),
    ("tag", 16, "Repeated in the response."),
    ("qp_state", 3, "", QpState),
    ("access", 4, "MR access or QP access.", AccessFlag),
    ("page_2m", 1, "Pages are 2 MiB, not 4 KiB."),
    ("key_tag", 8, "Low byte of lkey and rkey."),
    ("_r3", 8),
    ("extent", 8, "Knitting extent."),
    ("psn_guard", 5, "The peer's packets are less than 2^(23 - `psn_guard`) PSNs ahead of the oldest one expected."),
    ("_r0", 3),
    ("qpn", 24, "QPN; its generation must be the current one."),
    ("pd", 24, "Protection domain."), ("count", 16, "Page-table entries, 1 to 512."),
    ("va", 64, "Base virtual address of the MR."),
    ("length", 64, "Bytes of the MR (48 bits) or extent."),
    ("address", 64, "Physical address, 64-byte aligned: page list, extent, or result buffer (written in whole 64-byte "
     "blocks)."),
    ("mr_index", 24), ("_r1", 8), ("ip", 32, "IPv4 address: of the card (SET_NETWORK), of the QP's peer (QP_CREATE)."),
    ("pte_index", 32), ("psn", 32, "First PSN expected from the peer."),
    ("mac", 48, "MAC address of the card."), _CHECK)

RESPONSE = _host("RESPONSE", "Response to a command.",
    ("phase", 1, "Lap phase."), ("opcode", 7, "", CommandOpcode), ("tag", 16),
    ("status", 8, "", CommandStatus), ("_r0", 32),
    ("result0", 32), ("result1", 32), ("result2", 32), ("result3", 32), ("_r1", 320))


# --------------------------------------------------------------------------- Adamap and reports

class Encoding(enum.IntEnum):
    """Encodings of the holes of an Adamap node. Hole i, counted in PSN order, has RSN = rsn + i."""

    LIST = 1     # 20 offsets of 16 bits
    RUNS = 2     # 10 pairs: 16-bit offset, 16-bit length; unused pairs have length 0; 64 holes at most
    BITMAP = 3   # 320 bits; bit k set: base_psn + k is a hole


NODE_BODY_BITS = 320
NODE_HOLES_MAX = 320      # of any encoding
LIST_HOLES = 20
RUNS_MAX = 10
# the matcher keeps one bit per hole of LIST and RUNS; for a BITMAP the body itself is the open holes
RUNS_HOLES = 64
HOLES_MAX = {Encoding.LIST: LIST_HOLES, Encoding.RUNS: RUNS_HOLES, Encoding.BITMAP: NODE_HOLES_MAX}
OFFSET_BITS = 16
NEXT_PHASE_BIT, NEXT_ADJACENT_BIT = 0, 1

NODE = _host("NODE", "An Adamap node: the same bytes 8 to 63 in the report, the knitting buffer and the loss report.",
    ("next_phase", 1, "Phase of the block: toggles each time the block is used."),
    ("next_adjacent", 1, "The next block is the following 64 bytes."),
    ("next_check", 4, "Makes the XOR of the 4-bit parts of these first 8 bytes 0."),
    ("next_line", 58,
     "Physical address of the next block, divided by 64; 0: none yet. When there is one, the driver writes "
     "these 8 bytes again, atomically. In a ring entry this word is the report header."),
    ("qpn", 24, "Index of the receiving QP."),
    ("generation", 8, "Low bits of the generation of its QPN."),
    ("count", 12, "Holes, 1 to 320; LIST 20, RUNS 64 at most."),
    ("encoding", 4, "", Encoding),
    ("check", 16, "Makes the XOR of the 16-bit words after the first 8 bytes 0; the driver sets it when it links the "
     "node."),
    ("base_psn", 32, "32-bit PSN that offsets count from: the first hole."),
    ("rsn", 32, "RSN of the first hole; the driver sets it when it links the node."),
    ("body", NODE_BODY_BITS, "The holes."))


class ReportKind(enum.IntEnum):
    """Kinds of Meta Report entries."""

    NODE = 1         # bytes 8 to 63 are an Adamap node (rsn 0)
    RETIRE = 2       # a node left the list: REPORT_RETIRE
    MESSAGE_END = 3  # a packet with ack_req was accepted for the first time: REPORT_EVENT
    PROGRESS = 4     # the window is empty again after a message end it could not yet cover: REPORT_EVENT
    PROBE = 5        # a probe arrived and took effect, or came to a QP in ERR: REPORT_EVENT
    ERROR = 6        # a packet of a known QP was dropped: REPORT_EVENT
    QP_ERROR = 7     # the list of a QP is broken; the QP is in ERR: REPORT_EVENT
    TX_ERROR = 8     # a work descriptor was rejected: REPORT_EVENT
    UNMATCHED = 9    # a retransmission was placed without matching, its hole is filled: REPORT_EVENT
    PACED = 10       # the last packet of a paced descriptor is on its way to the line: REPORT_EVENT
    MARKED = 11      # data packets arrived with the mark CE; at most one per QP and `cnp_interval_ns`: REPORT_EVENT


_REPORT_HEADER = (("phase", 1, "Lap phase."), ("kind", 5, "", ReportKind))

REPORT_NODE = _host("REPORT_NODE", "Kind NODE: header, then a node.",
    *_REPORT_HEADER, ("_r0", 58), ("node", 448, "Bytes 8 to 63 of the NODE."))

REPORT_RETIRE = _host("REPORT_RETIRE", "Kind RETIRE: the block returns to the driver.",
    *_REPORT_HEADER, ("line", 58, "Physical address of the block, divided by 64."),
    ("qpn", 24, "Index of the QP."), ("generation", 8), ("residue", 24, "Holes still open."), ("_r0", 8),
    ("rsn", 32, "RSN of the node's first hole."), ("next_rsn", 32, "Every older RSN is before the list's head."),
    ("open", NODE_BODY_BITS,
     "Holes that were not filled. LIST and RUNS: bit i is hole i of the node. BITMAP: remaining bits of the body, bit "
     "k is PSN `base_psn` + k."))

HOLES_BITS = 24     # of a count of holes: less than 2^23 are outstanding

REPORT_EVENT = _host("REPORT_EVENT", "Kinds MESSAGE_END, PROGRESS, PROBE, ERROR, QP_ERROR, TX_ERROR, UNMATCHED, "
    "PACED, MARKED.",
    *_REPORT_HEADER, ("has_imm", 1, "The packet carried an immediate."),
    ("retransmission", 1, "It was a retransmission."),
    ("reason", 8, "Reason of the drop.", Reason), ("opcode", 8, "BTH opcode."), ("_r0", 40),
    ("qpn", 24, "Index of the local QP."), ("generation", 8),
    ("psn", 32, "32-bit PSN of the packet (PROBE: next to be sent; PACED: after the last packet)."),
    ("base", 32, "Window base: every older PSN was received or counted as a hole."),
    ("holes", HOLES_BITS, "Holes counted by this QP's window so far; free running."), ("_r2", 8),
    ("va", 64, "RETH address."),
    ("key", 32, "RETH key."), ("length", 32, "RETH length."),
    ("imm", 32, "Immediate data."), ("rsn", 32, "RSN of the packet (PROBE: next to be sent, 24 bits)."),
    ("src_ip", 32, "Sender."), ("time_ns", 48, "PACED: time at which the last packet was complete."),
    ("marked", 16, "MARKED: data packets of the QP with the mark CE so far; free running."), ("_r1", 32))
REPORT_LAYOUT = {ReportKind.NODE: REPORT_NODE, ReportKind.RETIRE: REPORT_RETIRE}
REPORT_LAYOUT.update({k: REPORT_EVENT for k in ReportKind if k not in REPORT_LAYOUT})

KEY_TAG_BITS = 8


def make_key(index: int, tag: int) -> int:
    """Return an lkey or rkey: 24-bit MR index and 8-bit random tag."""
    return index << KEY_TAG_BITS | tag


# Table entries, little-endian bit order; index widths are maxima of the contract, a build uses fewer bits.
QP_ENTRY_FIELDS = [("state", 3), ("generation", QPN_BITS), ("pd", 24), ("access", 4), ("peer_ip", 32), ("psn_guard", 5)]
MR_ENTRY_FIELDS = [("valid", 1), ("key_tag", 8), ("access", 4), ("pd", 24), ("page_2m", 1),
                   ("va", 64), ("length", 48), ("pte_index", 32)]
PTE = Layout("PTE", "An entry of the list that PAGE_TABLE_WRITE copies: the physical address of a page.", [
    Field("check", 12, "Makes the XOR of the entry's 12-bit words, the topmost padded with zeros, 0xFFF."),
    Field("page", 52, "Physical address divided by 4096.")], size_bytes=PTE_BYTES)
PTE_PAGE_BITS, PTE_CHECK_BITS = PTE.by_name["page"].width, PTE.by_name["check"].width


def pte_damage(entry: int) -> int:
    """Return the check of a page-table entry, a number, whose check field is 0; 0 for a valid entry."""
    ones, folded = (1 << PTE_CHECK_BITS) - 1, 0
    while entry:
        entry, folded = entry >> PTE_CHECK_BITS, folded ^ entry & ones
    return folded ^ ones
