"""Amaranth shapes of the contract, and payloads of the streams between blocks.

:func:`host_struct` and :func:`wire_struct` turn a contract :class:`~weft.hdl.contract.layout.Layout` into an
Amaranth layout. The classes below are the payloads of the streams between blocks: two blocks that
are connected share one of them.
"""

from amaranth.hdl import Cat, unsigned
from amaranth.lib import data, enum

from ..contract import abi, wire
from ..contract.layout import Layout
from ..contract.params import exact_log2
from ..contract.wire import QPN_BITS

BEAT_BYTES = 64
BEAT_BITS = BEAT_BYTES * 8
PAYLOAD_MAX = 4096                # bytes of payload in one packet, and of one DMA request
LENGTH_WIDTH = 13                 # holds PAYLOAD_MAX
FRAME_LENGTH_WIDTH = 14           # of the length of a frame or of its payload
LINE_WIDTH = 58                   # of a physical address divided by 64
PUSH_WINDOW_WIDTH = (abi.PUSH_WINDOWS - 1).bit_length()
TICKET_WIDTH = 8                  # every received packet gets the next ticket


def host_struct(layout: Layout):
    """Return the Amaranth struct of a little-endian contract layout, field for field (reserved ones included)."""
    assert layout.byteorder == "little"
    return data.StructLayout({f.name: unsigned(f.width) for f in layout.fields})


def wire_struct(layout: Layout):
    """Return the Amaranth struct of a network-order header *after* :func:`swap_bytes`: last field at bit 0."""
    assert layout.byteorder == "big"
    return data.StructLayout({f.name: unsigned(f.width) for f in reversed(layout.fields)})


def swap_bytes(value):
    """Return the bytes in opposite order. Byte 0 of a beat is bits 7:0; on the wire it is the most significant."""
    return Cat(*[value[i:i + 8] for i in reversed(range(0, len(value), 8))])


class Beat(data.Struct):
    """One beat of a byte stream; byte 0 is bits 7:0.

    ``empty`` is the number of unused bytes at the end of the last beat and zero elsewhere. There are no zero-length
    streams: nothing is sent for one. ``error`` is valid on the last beat only.
    """

    data: BEAT_BITS
    empty: 6
    last: 1
    error: 1


PAUSE_EMPTY = BEAT_BYTES - wire.MIN_FRAME_BYTES        # of a MAC control frame in its beat


class PauseFrame(data.Struct):
    """A PFC frame to send: source address, priority to pause, duration in quanta of 512 bit times."""

    source: 48
    priority: 3
    quanta: 16


# ------------------------------------------------------------------------------------------ DMA

class DmaRequest(data.Struct):
    """A contiguous range of host memory, 1 to 4096 bytes at any address; it may cross 4 KiB.

    The bytes of all requests up to the one with ``last`` form one contiguous :class:`Beat` stream
    (gather for reads, scatter for writes).
    """

    address: 64
    length: LENGTH_WIDTH
    last: 1


class LineRequest(data.Struct):
    """A read of 1 to 4 consecutive 64-byte lines; it may cross a 256-byte boundary, but not 4 KiB."""

    line: LINE_WIDTH    # physical address divided by 64
    count: 3            # 1 to params.REQUEST_LINES_MAX
    tag: 16             # set by the client, returned with the data; bits 15:12 are set by the arbiter


class LineData(data.Struct):
    """One line read. Lines of one request come in order; requests may overtake each other.

    The client must accept every line that it requested without delay: ``ready`` is ignored.
    """

    data: BEAT_BITS
    tag: 16
    index: 2    # which line of the request
    last: 1
    error: 1


class RegisterWrite(data.Struct):
    """A host write into BAR0: 4 or 8 aligned bytes (``wide``); byte offset ``address``."""

    address: 16
    data: 64
    wide: 1


class PushedDescriptor(data.Struct):
    """A host write into a window of ``abi.PUSH_BASE``: a ``whole`` descriptor, or a part, whose ``data`` are undefined.

    ``ring`` is an index of ``abi.PUSH_RINGS``.
    """

    data: BEAT_BITS
    window: PUSH_WINDOW_WIDTH
    ring: exact_log2(len(abi.PUSH_RINGS))
    whole: 1


# ------------------------------------------------------------------------------------- transmit

class TxPacket(data.Struct):
    """One packet to build: all fields of its headers, and the location of its payload."""

    opcode: 8          # BTH opcode
    ack_req: 1
    dqpn: 24
    sqpn: 24
    psn: 32
    rsn: 24
    has_rsn: 1
    has_imm: 1
    imm: 32
    rkey: 32
    remote_va: 64
    lkey: 32
    local_va: 64
    length: LENGTH_WIDTH
    inline: 1          # the payload came with the descriptor, not from host memory
    dst_mac: 48
    dst_ip: 32
    sport: 16
    ect: 1             # switches may mark it
    ring: 1            # 0 SEND, 1 RETRANSMIT
    last: 1            # last packet of its descriptor: the descriptor is finished


class TxJob(data.Struct):
    """A packet on its way to the frame builder. With a ``reason`` it never becomes a frame."""

    packet: TxPacket
    reason: 8           # abi.Reason
    qp_generation: 8    # of the local QP, once it is known
    silent: 1           # no report: an earlier packet of the descriptor was rejected, or it is no packet at all


class TxSegment(data.Struct):
    """A packet of a descriptor, with its payload if that is ``inline``."""

    job: TxJob
    data: BEAT_BITS     # bytes after its length are undefined


# Fields of a packet that are those of its descriptor, which advance from packet to packet.
TX_SAME = ("dqpn", "sqpn", "psn", "rsn", "imm", "rkey", "remote_va", "lkey", "local_va", "dst_mac",
           "dst_ip", "sport", "ect")
# Additional fields of a packet on a card with a pacer: the pacer sent it, and it is the last one of its descriptor. A
# `silent` one follows the packets of a QP that were on their way when one of them was rejected.
_PACED = {"paced": 1, "ends": 1}


def _with(struct, **members):
    """Return the layout of a struct with other or additional members."""
    return data.StructLayout(dict(data.Layout.cast(struct).members) | members)


def tx_job(*, paced):
    """Return the shape of :class:`TxJob`, on a card with a pacer with the fields ``paced`` and ``ends``."""
    return _with(TxJob, packet=_with(TxPacket, **_PACED)) if paced else TxJob


def tx_segment(*, paced):
    """Return the shape of :class:`TxSegment` with such a job."""
    return _with(TxSegment, job=tx_job(paced=True)) if paced else TxSegment


def hurt_qp(params):
    """Return the shape of a change: a QP was rejected, or no packet is left that was on its way then (``heals``)."""
    return data.StructLayout({"qpn": params.qpn_width, "heals": 1})


# -------------------------------------------------------------------------------------- receive

class RxKind(enum.Enum, shape=2):
    """Action of the receive path for a frame."""

    DATA = 0       # RDMA write: payload follows on the payload stream if its length is not zero
    PROBE = 1      # moves the window and the list, no payload
    RAW = 2        # whole frame to NIC_RX, on the payload stream
    REJECTED = 3    # dropped by the parser: no payload


class RxHeader(data.Struct):
    """One parsed frame, sent when its last byte and its ICRC are known."""

    kind: RxKind
    reason: 8          # abi.Reason when REJECTED
    roce: 1            # a packet for a QP of the card (RAW only)
    host: 1            # a packet for one of host_qpns, with a right ICRC (RAW only)
    opcode: 8
    dest_qp: 24        # all bits; after RxCheck, the index alone
    psn: 24
    ack_req: 1
    retransmission: 1
    rsn: 24
    has_imm: 1
    imm: 32
    va: 64
    rkey: 32
    dma_length: 32
    length: FRAME_LENGTH_WIDTH     # bytes on the payload stream
    src_ip: 32
    ce: 1              # a switch marked it: congestion experienced (DATA only)


class RawFrame(data.Struct):
    """A raw frame on its way to the host; its bytes follow."""

    length: FRAME_LENGTH_WIDTH
    roce: 1     # a packet for a QP of the card
    host: 1     # a packet for one of host_qpns


class Segment(data.Struct):
    """A physically contiguous part of a translated buffer."""

    address: 64
    length: LENGTH_WIDTH   # 0: not used


class RxPacket(data.Struct):
    """A checked and translated frame.

    ``reason`` is OK if the frame may take effect. ``live``: the window judges it.
    """

    header: RxHeader
    reason: 8
    live: 1
    qp_generation: 8
    qp_psn_guard: 5
    in_error: 1            # a probe of the peer for a QP in ERR
    segment0: Segment
    segment1: Segment


class WindowRequest(data.Struct):
    """A packet of an active QP for the window (original, probe) or the matcher (retransmission)."""

    qpn: 24
    generation: 8
    psn: 24
    rsn: 24
    retransmission: 1
    probe: 1
    ack_req: 1
    psn_guard: 5        # of the QP: number of high bits of a forward distance that must be zero
    ticket: TICKET_WIDTH


class Verdict(enum.Enum, shape=3):
    """Result of the window for a packet."""

    ACCEPT = 0          # place it; it was marked
    DUPLICATE = 1       # drop it
    STALE = 2           # below the cumulative PSN: drop it
    LATE = 3            # original whose hole left the window: place it, do not mark it
    MATCH = 4           # retransmission: place it; the matcher does the bookkeeping
    UNMATCHED = 5       # retransmission: place it; the match queue is full, so the driver does the bookkeeping
    PROBE = 6           # nothing to place
    FAR = 7             # further ahead than the peer may be: drop it, nothing changes


class WindowVerdict(data.Struct):
    """The window's response, in the order of requests."""

    verdict: Verdict
    psn: 32             # extended
    base: 32            # after the packet
    holes: abi.HOLES_BITS   # counted so far; free running
    progress: 1         # send a PROGRESS report: the window is empty again and a report is pending


class HoleRun(data.Struct):
    """Consecutive lost PSNs of one QP, from the window to the node builder.

    ``length`` 0 with ``seal`` only seals the open node.
    """

    qpn: 24
    generation: 8
    psn: 32
    length: 24
    seal: 1             # seal the QP's open node after this run
    ticket: TICKET_WIDTH


class MatchRequest(data.Struct):
    """A retransmission (or, with ``probe``, "every older RSN was sent") for the matcher."""

    qpn: 24
    generation: 8
    psn: 32
    rsn: 24
    probe: 1
    ticket: TICKET_WIDTH


class Report(data.Struct):
    """A Meta Report entry without its phase.

    It may be written once the packet ``ticket`` and all before it are placed.
    """

    entry: 512
    ticket: TICKET_WIDTH


class ListCreate(data.Struct):
    """A new incarnation of a QP: window at ``psn``, empty list."""

    qpn: 24
    generation: 8
    psn: 32


class QpRef(data.Struct):
    """An incarnation of a QP."""

    qpn: 24
    generation: 8


class Extent(data.Struct):
    """A contiguous part of the knitting buffer.

    It has less than ``2 ** extent_blocks_log2 - 1`` blocks; ``lines`` 0 removes it.
    """

    index: 8
    base: LINE_WIDTH
    lines: 32


def qp_entry(params):
    """Return the layout of a QP table entry: ``generation`` has the bits of a QPN above the index."""
    widths = dict(abi.QP_ENTRY_FIELDS) | {"generation": QPN_BITS - params.qpn_width}
    return data.StructLayout({n: unsigned(w) for n, w in widths.items()})


def qp_state(params):
    """Return the layout of the fields of a QP table entry that identify an incarnation: state and generation."""
    members = qp_entry(params).members
    return data.StructLayout({name: members[name] for name in ("state", "generation")})


def mr_entry():
    """Return the layout of an MR table entry."""
    return data.StructLayout({n: unsigned(w) for n, w in abi.MR_ENTRY_FIELDS})


NODE = host_struct(abi.NODE)
WORK = host_struct(abi.WORK)
WORK_INLINE = host_struct(abi.WORK_INLINE)
INLINE_DATA = host_struct(abi.INLINE_DATA)
COMMAND = host_struct(abi.COMMAND)
RESPONSE = host_struct(abi.RESPONSE)
NIC_TX = host_struct(abi.NIC_TX)
NIC_TX_INLINE = host_struct(abi.NIC_TX_INLINE)
NIC_TX_DATA = host_struct(abi.NIC_TX_DATA)
NIC_RX = host_struct(abi.NIC_RX)
REPORT_NODE = host_struct(abi.REPORT_NODE)
REPORT_RETIRE = host_struct(abi.REPORT_RETIRE)
REPORT_EVENT = host_struct(abi.REPORT_EVENT)
HOST_QPNS = host_struct(abi.HOST_QPNS)
PFC_WORD = host_struct(abi.PFC_WORD)
LINK_DOORBELL = host_struct(abi.LINK_DOORBELL)
CUM_DOORBELL = host_struct(abi.CUM_DOORBELL)
RATE_DOORBELL = host_struct(abi.RATE_DOORBELL)
LIMIT_DOORBELL = host_struct(abi.LIMIT_DOORBELL)
WIRE = {layout.name: wire_struct(layout) for layout in (
    wire.ETH, wire.PFC, wire.IPV4, wire.UDP, wire.BTH, wire.RETH, wire.AETH, wire.IMMDT, wire.RSNH)}
