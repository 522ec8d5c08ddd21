"""Results of an experiment, in named units."""

import functools
import time
from dataclasses import dataclass

import numpy as np

from weft.hdl.contract import abi

from . import engine
from .experiment import Experiment
from .path.queue import NAMES
from .schemes import card_bytes
from .simulation_state import COUNTS, SimulationState, make

TRANSFER_RTTS, TRANSFER_LINES = 10_000, 1000   # time limit of a transfer: in round trips, plus in transmission times


class Unmeasured(Exception):
    """Run without a result: one of its arrays was full, or its transfer did not end."""


@dataclass(frozen=True)
class Result:
    """Measurements of one run.

    Attributes
    ----------
    goodput
        Payload placed for the first time, as a share of the capacity of the line. Measured after the warm-up, or for
        a transfer over its whole time.
    ordered_goodput
        The same share for payload that is complete up to its PSN: every older packet is placed, too.
    completion_ms
        Time from the first packet until all data of the last QP is acknowledged; NaN for an endless load.
    packets, retransmissions, lost : int
        Packets sent (without probes), packets sent another time, packets lost on the line. They and all following
        counts cover the whole run.
    spurious
        Retransmissions of packets that had been placed.
    late_originals
        Originals that arrived after they had been taken for lost.
    card_bytes
        Memory on the card for the window.
    host_bytes, blocks_peak : int
        Peak use of the knitting buffer, in bytes and in blocks.
    waiting_peak
        Largest number of nodes that waited for a block at the same time.
    leaked_blocks
        Blocks that are neither free nor in the list of a QP at the end.
    matches, stalls : int
        Retransmissions that were matched, and those that had to wait for their node.
    stall_us
        Mean time that they waited.
    unmatched, reads, holes, nodes : int
        Retransmissions left to the driver; reads of nodes; holes found; nodes linked.
    span_peak
        Largest distance from the oldest missing packet to the newest received one.
    limited
        Number of times a QP had to stop because too many packets were outstanding.
    idle
        Share of slots in which nothing was sent.
    wraps
        Number of times the 24-bit PSNs wrapped around.
    aliases
        PSNs that were mistaken for others.
    seconds, packets_per_second : float
        Processor time of this computer without compilation, and packets simulated per second of it.
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
def compile_engine() -> None:
    """Compile the engine, or load it from its cache, so that the time of an experiment excludes compilation."""
    engine.run(make(Experiment(scheme="go-back-n", rtt_ms=0.05, transfer_mib=0.01)), 1)


def _advance(w: SimulationState, until: int) -> None:
    engine.run(w, until)
    if reason := int(w.s["overflow"]):
        raise Unmeasured(f"no space for more {NAMES[reason - 1]}; have more knitting blocks, less loss, or a shorter "
                         "round trip")


def measure(x: Experiment, simulation_state: SimulationState | None = None) -> Result:
    """Run an experiment and return its results.

    Raises
    ------
    Unmeasured
    """
    w = make(x) if simulation_state is None else simulation_state
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


def _result(x: Experiment, w: SimulationState, before: np.void, start: int, seconds: float) -> Result:
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
