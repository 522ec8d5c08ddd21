"""Arrays of a run, sized for the path of its experiment.

Each module of the engine declares its fields: CONFIG for constants, STATE for its state, COUNTS for results, QP for the
fields of each QP. This module combines them into records. All schemes share one set of types, so the engine is
compiled once.
"""

from typing import NamedTuple

import numpy as np

from weft.hdl.contract import wire

from .adamap import builder, cache, knitting, matcher, node, window
from .experiment import Experiment
from .path import back, draw, line, loss, queue, score, sender
from .path.draw import streams
from .scheme import dispatch
from .schemes import configuration

_PARTS = (draw, queue, line, back, loss, score, sender, dispatch, node, builder, window, cache, matcher, knitting)


def _fields(*kinds: str) -> np.dtype:
    return np.dtype([field for kind in kinds for part in _PARTS for field in getattr(part, kind, [])])


COUNTS = _fields("COUNTS")
RUN = _fields("CONFIG", "STATE", "COUNTS")
QP = np.dtype(sender.QP + score.QP + dispatch.QP + cache.QP)
ENDLESS = 1 << 60


class SimulationState(NamedTuple):
    """Arrays of records."""

    s: np.void            # configuration, state, counts
    qp: np.ndarray        # QPs
    flight: np.ndarray    # packets on the line, by slot
    queue: np.ndarray     # queues
    entry: np.ndarray     # entries of the queues
    seen: np.ndarray      # (QPs, words) bits of the placed PSNs
    window: np.ndarray    # windows: QPs and their lanes
    node: np.ndarray      # Adamap nodes
    waiting: np.ndarray   # the match queue


def power(least: float) -> int:
    """Return the smallest power of two that is at least this number."""
    return 1 << max(0, int(least) - 1).bit_length()


def make(x: Experiment) -> SimulationState:
    """Return the arrays of an experiment before its first slot."""
    settings = configuration(x)
    flight = power(settings["delay"] + x.slots(us=x.skew_us + x.switch_us + x.swap_us * (x.swap > 0))
                   + max(x.slots(ms=x.outage_ms), x.bdp) + 64)
    again = power(4 * x.bdp + 2 * x.slots(ms=x.outage_ms) + 65536)
    # Largest lead of a QP over its oldest missing packet: several round trips of its share of the line. The limit on
    # outstanding PSNs is then the only one; it does not apply to the oracle.
    lead = power(max(4096, min(64 * x.bdp // x.qps, 1 << 26) + 4 * x.slots(ms=x.outage_ms) // x.qps))
    if x.scheme != "oracle":
        lead = min(lead, wire.PSN_OUTSTANDING_MAX)
    adamap = settings["scheme"] == dispatch.ADAMAP
    timed = settings["scheme"] in (dispatch.TIMER_ONLY, dispatch.DCP)
    nodes = power(2 * x.blocks) if adamap else 1
    qps, by_node = power(x.qps), nodes
    sizes = {queue.RESENDS: again, queue.READY: qps, queue.PROBES: qps, queue.BACK: power(2 * x.bdp + 65536),
             queue.DUE: power(settings["due_slots"] + 65536) if timed else 1, queue.OPENED: by_node,
             queue.SEALED: by_node, queue.BLOCKLESS: by_node, queue.FETCHES: qps, queue.LOOKS: qps}
    settings |= {"flight_mask": flight - 1, "seen_log2": lead.bit_length() - 1, "blocks_free": x.blocks,
                 "blocks_owed": x.qps, "node_free": -1,
                 "outstanding_max": min(settings["window"] or lead - 1, lead - 1)}
    w = SimulationState(
        s=np.zeros(1, RUN)[0], qp=np.zeros(x.qps, QP), flight=np.zeros(flight, line.FLIGHT),
        queue=np.zeros(len(sizes), queue.QUEUE), entry=np.zeros(sum(sizes.values()), queue.ENTRY),
        seen=np.zeros((x.qps, max(1, lead // 64)), np.uint64),
        window=np.zeros(x.qps * settings["lanes"] if adamap else 1, window.WINDOW), node=np.zeros(nodes, node.NODE),
        waiting=np.zeros(x.match_queue, matcher.WAITING))
    for name, value in settings.items():
        if name in (RUN.names or ()):
            w.s[name] = value
    w.s["random"] = streams(x.seed)
    w.queue["mask"] = np.array([sizes[at] for at in range(len(sizes))]) - 1
    w.queue["first"][1:] = np.cumsum(w.queue["mask"] + 1)[:-1]
    w.flight["bucket"] = -1
    w.waiting["next"] = [*range(1, x.match_queue), -1]
    w.window["open"], w.window["reorder"] = -1, x.reorder
    for name in ("list_head", "list_tail", "wait_head", "wait_tail", "sent_at", "came_at", "done_at", "nak_rsn"):
        w.qp[name] = -1
    w.qp["total"] = x.packets or ENDLESS
    return w
