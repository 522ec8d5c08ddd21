"""How long everything takes in the card and on the way to host memory: all that calibration may change stands here.

Times are nanoseconds. Amounts that the gateware fixes come from :mod:`weft.hdl.contract.params`; these are what its
pipelines and the simulated host add, found with ``weft calibrate``.
"""

from dataclasses import dataclass

from weft.hdl.contract.params import NS_PER_CYCLE

CYCLE_NS = float(NS_PER_CYCLE)      # of the card's clock, 250 MHz
BEAT_BYTES = 64
HALF_PS = 0.0005        # times on the line are exact to a picosecond


def edge(time_ns):
    """The first edge of the clock at or after a time."""
    return -(-time_ns // CYCLE_NS) * CYCLE_NS


@dataclass(frozen=True)
class HostTiming:
    """How a host behaves: the fields of ``weft.tb.sim.pcie.host.HostConfig`` that take time.

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
        From when it begins on the link to the card; of a whole read.
    register_pace : float
        Between writes that come at once.
    room : float
        From a read's last completion to the request that waited for its room.
    pcie_bytes_per_ns : float
        Of the link, Gen3 x16.
    pcie_hop : float
        From the last byte on the link to the other side.
    write_header_bytes, message_header_bytes, completion_header_bytes : int
        Of a TLP on the link, besides its payload: of writes to addresses above and below 4 GiB.
    interrupt, doorbell : float
        From a ring entry's beat in the write engine to its vector's being pending; from the doorbell that arms a ring
        with entries until it might be.
    ring_fetch, ring_refill : float
        From a doorbell at the card to the request for the descriptor, and from the place for more to theirs.
    pushed : float
        From a pushed descriptor at the card until it is offered to its taker.
    delivered : float
        From a descriptor's last line at the card until it is offered to its taker.
    descriptor : float
        From there to the choice between its first packet and others.
    check : float
        From there to the request for the payload.
    frame_descriptor : float
        The same of a raw frame.
    payload, raw_payload : float
        From the last completion of a read to its first byte in the framer; of a raw frame's in its reader.
    send : float
        From the last beat of a frame through the merge to the line.
    retire, retire_raw : float
        From the last beat of a descriptor's last packet out of the framer, or of a raw frame out of its reader, until
        it counts as finished.
    status : float
        From there until the status block is made up.
    judge : float
        From a packet's last beat out of the MAC to the window's verdict.
    asked : float
        The same from the beat with the end of its headers, before which the verdict is not there either; longer while
        translations of others wait for their packets.
    place : float
        From a verdict to the request for the payload's write.
    raw : float
        From where a raw frame would be judged to the request for its write.
    placed, placed_retire : float
        From the last beat of a packet's payload in the write engine until a report that speaks of it is at its ring;
        of a node that leaves.
    retire_report : float
        From the order to leave that a node gets until that report is at its ring, at least.
    node_report, aged_report : float
        The same of a node that is sealed, from when the builder takes what seals it, or sees that it is old.
    command, qp_command : float
        From the descriptor's line at the card until the answer is at its ring; of a command that is about a QP.
    command_done : float
        From there until the command counts as finished.
    pages, pages_written : float
        From the descriptor of a PAGE_TABLE_WRITE to the first request for its entries, and from the last entry in the
        table until the answer is at its ring.
    look, linked, ask : float
        Prefetcher, see ``hdl/adamap/prefetch/prefetch.py``: from the matcher's reason to look at a list, or a doorbell
        at the card, until it may be chosen; from the step that asks for blocks to the request.
    line : float
        From the end of a read until its blocks may be chosen.
    wake : float
        From a node in the cache until a header that waited is tried.
    match : float
        Matcher, see ``hdl/adamap/match/matcher.py``: from a verdict to its hit or miss.
    """

    register_write: float = 16.4
    register_pace: float = 12.0
    register_read: float = 52.0
    room: float = 28.0
    pcie_bytes_per_ns: float = 15.754
    pcie_hop: float = 10.0
    write_header_bytes: int = 24
    message_header_bytes: int = 20
    completion_header_bytes: int = 20
    interrupt: float = 16.0
    doorbell: float = 28.0
    ring_fetch: float = 64.0
    ring_refill: float = 32.0
    pushed: float = 44.0
    delivered: float = 44.0
    descriptor: float = 4.0
    check: float = 72.0
    frame_descriptor: float = 24.0
    payload: float = 44.0
    raw_payload: float = 40.0
    send: float = 12.0
    retire: float = 12.0
    retire_raw: float = 8.0
    status: float = 4.0
    judge: float = 60.0
    asked: float = 64.0
    place: float = 12.0
    raw: float = 8.0
    placed: float = 12.0
    placed_retire: float = 24.0
    retire_report: float = 40.0
    node_report: float = 28.0
    aged_report: float = 24.0
    command: float = 32.0
    qp_command: float = 92.0
    command_done: float = 12.0
    pages: float = 50.0
    pages_written: float = 36.0
    look: float = 16.0
    linked: float = 32.0
    ask: float = 28.0
    line: float = 32.0
    wake: float = 32.0
    match: float = 12.0


LINE_OVERHEAD_BYTES, PREAMBLE_BYTES = 24, 8
TIMING = Timing()
