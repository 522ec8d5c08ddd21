"""What came out of an experiment, in named units."""

import functools
import time
from dataclasses import dataclass

import numpy as np

from weft.hdl.contract import abi

from . import engine
from .experiment import Experiment
from .path.queue import NAMES
from .schemes import card_bytes
from .world import COUNTS, make

TRANSFER_RTTS, TRANSFER_LINES = 10_000, 1000   # when a transfer is given up: round trips, times its time on the line


class Unmeasured(Exception):
    """The run has no result: an array of it was full, or its transfer does not end."""


@dataclass(frozen=True)
class Result:
    """What was measured.

    Attributes
    ----------
    goodput : float
        Payload placed for the first time, as a share of what the line could carry, after warm-up; of a transfer: over
        its whole time.
    ordered_goodput : float
        The same, counted when everything before it was there, too.
    completion_ms : float
        From the first packet until the last QP has everything acknowledged; NaN without end.
    packets, retransmissions, lost : int
        Sent (all but probes), sent for another time, lost on the line; over the whole run, like all that follows.
    spurious : int
        Retransmissions of what had been placed.
    late_originals : int
        Originals that came after they had been taken for lost.
    card_bytes : float
        Memory on the card for the window.
    host_bytes, blocks_peak : int
        Most memory of the knitting buffer in use, and the blocks it consists of.
    waiting_peak : int
        Nodes that waited for a block at the same time, at most.
    leaked_blocks : int
        Blocks that are neither free nor in the list of a QP at the end.
    matches, stalls : int
        Retransmissions that were matched, and those that had to wait for their node.
    stall_us : float
        How long they waited on average.
    unmatched, reads, holes, nodes : int
        Left to the driver; reads of nodes; holes found; nodes linked.
    span_peak : int
        Packets from the oldest missing one to the newest that came.
    limited : int
        How often a QP had to stop as too much was outstanding.
    idle : float
        Share of slots in which nothing was sent.
    wraps : float
        How often PSNs of 24 bits came round.
    aliases : int
        PSNs that were taken for others.
    seconds, packets_per_second : float
        Processor time of this computer, compilation not counted.
    """

    goodput: float
    ordered_goodput: float
    completion_ms: float
    packets: int
    retransmissions: int
    lost: int
    spurious: int
    late_originals: int
    card_bytes: float
    host_bytes: int
    blocks_peak: int
    waiting_peak: int
    leaked_blocks: int
    matches: int
    stalls: int
    stall_us: float
    unmatched: int
    reads: int
    holes: int
    nodes: int
    span_peak: int
    limited: int
    idle: float
    wraps: float
    aliases: int
    seconds: float
    packets_per_second: float


@functools.cache
def compile_engine():
    """Make the machine code, or read it where it is kept; it has no part in the time of an experiment."""
    engine.run(make(Experiment(scheme="go-back-n", rtt_ms=0.05, transfer_mib=0.01)), 1)


def _advance(w, until):
    engine.run(w, until)
    if reason := int(w.s["overflow"]):
        raise Unmeasured(f"no room for more {NAMES[reason - 1]}; have more knitting blocks, less loss, or a shorter "
                         "round trip")


def measure(x, world=None):
    """Run an Experiment.

    Raises
    ------
    Unmeasured
    """
    w = make(x) if world is None else world
    compile_engine()
    began = time.thread_time()
    if x.packets:
        slots, start = TRANSFER_RTTS * x.bdp + TRANSFER_LINES * x.packets * x.qps, 0
        before = np.zeros(1, COUNTS)[0]
    else:
        start = round(x.warmup_rtts * x.bdp)
        slots = start + max(1, round(x.measured_rtts * x.bdp))
        _advance(w, start)
        before = w.s.copy()
    _advance(w, slots)
    if x.packets and w.s["done"] < x.qps:
        raise Unmeasured(f"the transfer has not ended after {slots * x.slot_ns / 1e9:.3g} s of its time")
    return _result(x, w, before, start, time.thread_time() - began)


def _result(x, w, before, start, seconds):
    n = w.s
    slots = int(n["now"]) - start
    packets = int(n["originals"] + n["retransmissions"])
    uses_blocks = int(n["nodes_linked"]) > 0
    peak = int(n["blocks_peak"]) if uses_blocks else 0
    return Result(
        goodput=float(n["placed"] - before["placed"]) / slots,
        ordered_goodput=float(n["in_order"] - before["in_order"]) / slots,
        completion_ms=float(w.qp["done_at"].max()) * x.slot_ns / 1e6 if x.packets else float("nan"),
        packets=packets, retransmissions=int(n["retransmissions"]), lost=int(n["lost"]),
        spurious=int(n["placed_again"]), late_originals=int(n["late_originals"]), card_bytes=float(card_bytes(x)),
        host_bytes=peak * abi.BLOCK_BYTES, blocks_peak=peak, waiting_peak=int(n["waiting_peak"]),
        leaked_blocks=x.blocks - int(n["blocks_free"]) - int(w.qp["blocks"].sum()),
        matches=int(n["matches"]), stalls=int(n["stalls"]),
        stall_us=float(n["stall_slots"]) * x.slot_ns / 1e3 / max(1, int(n["stalls"] - n["unmatched"])),
        unmatched=int(n["unmatched"]), reads=int(n["reads"]), holes=int(n["holes"]), nodes=int(n["nodes_linked"]),
        span_peak=int(n["span_peak"]), limited=int(n["limited"]),
        idle=float(n["idle_slots"] - before["idle_slots"]) / slots, wraps=float(w.qp["next"].max()) / (1 << 24),
        aliases=int(n["aliases"]), seconds=seconds, packets_per_second=packets / max(seconds, 1e-9))
