"""Latencies of the card and of its path to host memory: all values that calibration may change.

Times are nanoseconds. Amounts that the gateware fixes come from :mod:`weft.hdl.contract.params`. The values in this
module are the latencies of its pipelines and of the simulated host, measured with ``weft calibrate``.
"""

from dataclasses import dataclass

from weft.hdl.contract.params import NS_PER_CYCLE

CYCLE_NS = float(NS_PER_CYCLE)      # of the card's clock, 250 MHz
BEAT_BYTES = 64
HALF_PS = 0.0005        # times on the line are exact to a picosecond


def edge(time_ns: float) -> float:
    """Return the time of the first clock edge at or after a time."""
    return -(-time_ns // CYCLE_NS) * CYCLE_NS


@dataclass(frozen=True)
class HostTiming:
    """Behaviour of a host: the fields of ``weft.tb.sim.pcie.host.HostConfig`` that affect the time.

    Attributes
    ----------
    read_latency_ns, read_jitter
        Mean memory latency of a read, and the fraction by which it varies uniformly.
    read_tail, read_tail_ns
        Chance and additional latency of a slow read.
    split_completions
        Every completion ends at the next multiple of 64 bytes.
    stall
        Chance per cycle of back pressure on a stream of the hard block.
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
    """Latencies of the card, in nanoseconds unless a name has another unit.

    Attributes
    ----------
    register_write, register_read
        From the beginning on the link to the card; of a whole read.
    register_pace
        Between register writes in a burst.
    space : float
        From a read's last completion to the request that waited for its space in the completion buffer.
    pcie_bytes_per_ns
        Rate of the link, Gen3 x16.
    pcie_hop
        From the last byte on the link to the other side.
    write_header_bytes, message_header_bytes, completion_header_bytes
        Overhead of a TLP on the link: of writes to addresses above and below 4 GiB, and of completions.
    interrupt, doorbell
        From a ring entry's beat in the write engine until its vector is pending; from the doorbell that arms a ring
        with entries until its vector may be pending.
    ring_fetch, ring_refill
        From a doorbell at the card to the request for the descriptor; from free space to the request for further
        descriptors.
    pushed
        From a pushed descriptor at the card until it is offered to its consumer.
    delivered
        From a descriptor's last line at the card until it is offered to its consumer.
    descriptor
        From there to the arbitration between its first packet and others.
    check
        From there to the request for the payload.
    frame_descriptor
        The same for a raw frame.
    inline_frame
        From there to its first byte in its reader.
    payload, raw_payload
        From the last completion of a read to its first byte in the framer; for a raw frame, in its reader.
    send
        From the last beat of a frame through the merge to the line.
    retire, retire_raw
        From the last beat of a descriptor's last packet out of the framer, or of a raw frame out of its reader, until
        the descriptor counts as finished.
    status
        From there until the contents of the status block are fixed.
    judge
        From a packet's last beat out of the MAC to the window's verdict.
    asked
        From the beat with the end of its headers to the earliest verdict; longer while translations of other packets
        wait.
    place
        From a verdict to the request for the payload's write.
    raw
        From the time at which a raw frame would have its verdict to the request for its write.
    placed, placed_retire
        From the last beat of a packet's payload in the write engine until a report of the packet is at its ring; the
        same for the report of a retired node.
    retire_report
        Least time from a node's order to retire until that report is at its ring.
    node_report, aged_report
        The same for a sealed node, from when the builder takes the cause of the seal, or detects the age limit.
    command, qp_command
        From the descriptor's line at the card until the response is at its ring; of a command for a QP.
    command_done
        From there until the command counts as finished.
    pages, pages_written
        From the descriptor of a PAGE_TABLE_WRITE to the first request for its entries, and from the last entry in the
        table until the response is at its ring.
    look, linked, ask
        Prefetcher, see ``hdl/adamap/prefetch/prefetch.py``: from the matcher's request for a check of a list, or from a
        doorbell at the card, until the list may be chosen; from the step that requests blocks to the request.
    line
        From the end of a read until its blocks may be chosen.
    wake
        From a node in the cache until the next attempt of a waiting header.
    match
        Matcher, see ``hdl/adamap/match/matcher.py``: from a verdict to its hit or miss.
    """

    register_write: float = 16.4
    register_pace: float = 12.0
    register_read: float = 52.0
    space: float = 28.0
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
    inline_frame: float = 4.0
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


PREAMBLE_BYTES = 8
TIMING = Timing()
