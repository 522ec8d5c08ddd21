"""Configuration of the engine for each scheme, and the memory that the scheme needs on the card."""

from typing import Any

from .adamap import node
from .experiment import Experiment
from .scheme import dispatch

MIN_TIMEOUT_US = 50          # the driver's default probe_timeout_ns
ACK_EVERY = 64                # packets, or a part of the window
DUE_RTTS = 3                  # deadline of packets of timer-only, and of messages of DCP
LANES = 8
# Bytes on the card. Adamap: increase of the elaborated subsystem per QP, per builder slot and per cache entry, for a
# window of 128 bits; `weft bench --only card-bytes` compares them with the netlist.
ADAMAP_QP, ADAMAP_PLACE, ADAMAP_ENTRY = 31.9, 54.2, 73.9
GO_BACK_N_QP = 12                          # an estimate: three PSNs of 32 bits
IRN_QP, IRN_PER_PACKET = 38, 31.5 / 128    # Mittal et al., SIGCOMM 2018: state, and bitmaps at a window of 128 packets
MELO_QP = 23                               # Lu et al., APNet 2017, abstract; the rest of the memory is the pool
DCP_QP = 32                                # Li et al., SIGCOMM 2025, as cited: counts per message, no bitmap
MELO_BLOCK_BITS = 128                      # an estimate: the paper does not specify it

_KIND = {"go-back-n": dispatch.GO_BACK_N, "melo": dispatch.MELO, "dcp": dispatch.DCP,
         "timer-only": dispatch.TIMER_ONLY, "oracle": dispatch.ORACLE}


def window(x: Experiment) -> int:
    """Return the limit that a scheme puts on outstanding packets; 0: no limit."""
    return {"irn-128": 128, "irn-512": 512, "irn-bdp": x.bdp}.get(x.scheme, 0)


def lanes(x: Experiment) -> int:
    return LANES if x.scheme == "adamap-lanes" else 1


def adamap_bytes(x: Experiment) -> float:
    """Return the card memory of Adamap with these sizes; each further lane adds a window."""
    return (x.qps * (ADAMAP_QP + x.window_bits / 8 * (lanes(x) - 1) + (x.window_bits - 128) / 8)
            + x.builder_slots * ADAMAP_PLACE + x.cache_entries * ADAMAP_ENTRY)


def pool_blocks(x: Experiment) -> int:
    """Return the blocks of MELO's pool: Adamap's memory without MELO's state per QP."""
    return max(1, int((adamap_bytes(x) - x.qps * MELO_QP) * 8 // MELO_BLOCK_BITS))


def card_bytes(x: Experiment) -> float:
    """Return the memory for the receive window on the card, in bytes."""
    if x.scheme.startswith("irn"):
        return x.qps * (IRN_QP + IRN_PER_PACKET * window(x))
    return {"go-back-n": x.qps * GO_BACK_N_QP, "dcp": x.qps * DCP_QP, "timer-only": 0, "oracle": 0}.get(
        x.scheme, adamap_bytes(x))


def configuration(x: Experiment) -> dict[str, Any]:
    """Return the values of the engine's CONFIG record, with times in slots."""
    limit, rtt = window(x), x.bdp
    enter = x.burst_loss / (1 - x.burst_loss) / x.burst
    fifo = x.scheme == "hole-fifo"
    return {
        "scheme": _KIND.get(x.scheme, dispatch.IRN if limit else dispatch.ADAMAP),
        "sees_losses": x.scheme in ("oracle", "dcp"),
        "qps": x.qps, "window": limit, "message_packets": x.message_packets,
        "ack_every": max(1, min(ACK_EVERY, limit // 8 if limit else ACK_EVERY)),
        "delay": rtt - rtt // 2, "back_delay": rtt // 2,
        "time_out": max(2 * rtt + rtt // 8, x.slots(us=MIN_TIMEOUT_US)), "marker": x.marker or x.scheme == "oracle",
        "due_slots": DUE_RTTS * rtt,
        "loss": x.loss, "drift_loss": x.drift_loss, "drift_slots": x.slots(ms=x.drift_ms),
        "burst_enter": enter, "burst_leave": 1 / x.burst,
        "outage_start": round(x.outage_at_rtts * rtt), "outage_slots": x.slots(ms=x.outage_ms),
        "outage_period": x.slots(ms=x.outage_every_ms), "comb_every": x.comb, "back_loss": x.back_loss,
        "header_loss": x.loss if x.header_loss is None else x.header_loss,
        "swap": x.swap, "swap_slots": x.slots(us=x.swap_us), "paths": x.paths, "skew_slots": x.slots(us=x.skew_us),
        "switch_at": round(x.switch_at_rtts * rtt), "switch_slots": x.slots(us=x.switch_us),
        "pool_block_bits": MELO_BLOCK_BITS, "pool_size": pool_blocks(x),
        "encodings": {"adamap-raw": node.BITMAP, "hole-fifo": node.LIST}.get(
            x.scheme, node.LIST | node.RUNS | node.BITMAP),
        "builder_slots": x.builder_slots, "age_slots": x.slots(us=x.node_age_us),
        "host_slots": 0 if fifo else x.slots(us=x.host_us), "resident": fifo,
        "lanes": lanes(x), "window_bits": x.window_bits, "reorder": x.reorder, "adapt": lanes(x) > 1,
        "quiet_slots": 4 * rtt, "depth": x.cache_entries if fifo else x.depth, "watermark": x.watermark,
        "fetch_blocks": x.fetch_blocks, "cache_entries": x.cache_entries, "dma_slots": x.slots(us=x.dma_us),
        "slack": x.slack, "match_queue": x.match_queue, "blocks": x.blocks, "alpha": x.alpha,
    }
