"""How long everything takes in the card and on the way to host memory: all that calibration may change stands here.

Times are nanoseconds. Amounts that the gateware fixes come from :mod:`weft.hdl.params`; these are what its pipelines
and the simulated host add, found with ``weft calibrate``.
"""

from dataclasses import dataclass

CYCLE_NS = 4.0      # of the card's clock, 250 MHz
BEAT_BYTES = 64


def edge(time_ns):
    """The first edge of the clock at or after a time."""
    return -(-time_ns // CYCLE_NS) * CYCLE_NS


@dataclass(frozen=True)
class HostTiming:
    """How a host behaves: the fields of ``weft.tb.world.host.HostConfig`` that take time.

    Attributes
    ----------
    read_latency_ns, read_jitter : float
        Mean of what a read waits for memory, and the fraction by which it varies uniformly.
    read_tail, read_tail_ns : float
        Chance of, and further wait of, an unlucky read.
    max_payload_bytes, max_read_bytes : int
    split_completions : bool
        Every completion ends at the next multiple of 64 bytes.
    stall : float
        Chance per cycle that a stream of the hard block is held back.
    """

    read_latency_ns: float = 1000
    read_jitter: float = 0.1
    read_tail: float = 0.0
    read_tail_ns: float = 5000
    max_payload_bytes: int = 512
    max_read_bytes: int = 1024
    split_completions: bool = False
    stall: float = 0.0


@dataclass(frozen=True)
class Timing:
    """Latencies of the card, in nanoseconds unless a name says otherwise.

    Attributes
    ----------
    register_write, register_read : float
        From the driver's call to the card; of a whole read.
    register_pace : float
        Between writes that come at once.
    read_request : float
        From a read's request out of the card to the host's memory.
    room : float
        From a read's last completion to the request that waited for its room.
    pcie_bytes_per_ns : float
        Of the link, Gen3 x16.
    pcie_hop : float
        From the last byte on the link to the other side.
    write_pace : float
        Between small writes of one client.
    write_header_bytes, completion_header_bytes : int
        Of a TLP on the link, besides its payload.
    interrupt : float
        From a ring entry's request to its vector's being pending.
    message_ahead : float
        By how much a message asks for the write engine earlier than an entry that is as late.
    ring_fetch, ring_refill : float
        From a doorbell at the card to the request for the descriptor, and from the place for more to theirs.
    descriptor : float
        From a descriptor's last line at the card to the choice between its first packet and others.
    check : float
        From there to the request for the payload.
    frame_descriptor : float
        The same of a raw frame.
    payload : float
        From the last completion of a read to its first byte in the frame.
    send, send_raw : float
        From the last beat of a frame out of the framer to the line; of a raw frame.
    retire, retire_raw : float
        From the last beat of a descriptor's last packet until it counts as finished.
    status : float
        From there to the status block's request.
    judge : float
        From the last byte of a packet on the line to the window's verdict.
    place : float
        From a verdict to the request for the payload's write.
    raw : float
        From the last byte of a raw frame on the line to the request for its write.
    request_ahead : float
        By how much a packet asks for the write engine before its payload is there.
    store_frame_entry : float
        From there to the request for its ring entry's.
    placed, placed_retire : float
        From the last beat of a packet's payload to the earliest report that speaks of it; of a node that leaves.
    event_report, node_report, retire_report : float
        From a verdict, or from when a node leaves its list, to the request for the report's write.
    slide, seal : float
        By how much a verdict is later that slides over holes, or seals a node.
    hole_run, aged_report : float
        By how much the report of a node is later that gets holes before it is sealed; from a node's age to its
        report's write.
    command, qp_command : float
        From the descriptor's line at the card to the request for the answer's write; of a command that is about a QP.
    pages, pages_written : float
        From the descriptor of a PAGE_TABLE_WRITE to the first request for its entries, and from the last entry in the
        table to the request for the answer's write.
    look, linked, ask : float
        Prefetcher, see ``hdl/adamap/prefetch.py``: from the matcher's reason to look at a list, or a doorbell at the
        card, until it may be chosen; from the step that asks for blocks to the request.
    line : float
        From the end of a read until its blocks may be chosen.
    wake : float
        From a node in the cache until a header that waited is tried.
    match : float
        Matcher, see ``hdl/adamap/matcher.py``: from a verdict to its hit or miss.
    """

    register_write: float = 16.4
    register_pace: float = 12.0
    register_read: float = 52.0
    read_request: float = 14.0
    room: float = 20.0
    pcie_bytes_per_ns: float = 15.754
    pcie_hop: float = 6.0
    write_pace: float = 20.0
    write_header_bytes: int = 20
    completion_header_bytes: int = 20
    interrupt: float = 20.0
    message_ahead: float = 28.0
    ring_fetch: float = 56.0
    ring_refill: float = 4.0
    descriptor: float = 24.0
    check: float = 84.0
    frame_descriptor: float = 56.0
    payload: float = 40.0
    send: float = 40.0
    send_raw: float = 16.0
    retire: float = 44.0
    retire_raw: float = 36.0
    status: float = 12.0
    judge: float = 91.8
    place: float = 80.0
    raw: float = 52.0
    request_ahead: float = 28.0
    store_frame_entry: float = 44.0
    placed: float = -16.0
    placed_retire: float = -8.0
    event_report: float = 88.0
    node_report: float = 84.0
    retire_report: float = 88.0
    slide: float = 16.0
    seal: float = 8.0
    hole_run: float = 20.0
    aged_report: float = 92.0
    command: float = 112.0
    qp_command: float = 196.0
    pages: float = 82.0
    pages_written: float = 84.0
    look: float = 12.0
    linked: float = 8.0
    ask: float = 24.0
    line: float = 28.0
    wake: float = 24.0
    match: float = 8.0


LINE_OVERHEAD_BYTES, PREAMBLE_BYTES = 24, 8
TIMING = Timing()
