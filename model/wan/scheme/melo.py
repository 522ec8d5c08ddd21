"""MELO: bitmaps from a pool that all QPs share (Lu et al., APNet 2017), with as much card memory as Adamap.

A QP holds blocks of ``pool_block_bits`` PSNs from its oldest missing packet to its newest received one, while a packet
is missing. A packet for which no block is free is dropped, and detected like a loss. There is no window.
"""

from ...machine_code import compiled
from ..path.back import NACK, answer
from ..path.line import PROBE
from ..path.score import acknowledge, place
from .order import report_gap

QP = [("pool_blocks", "i8"), ("pool_top", "i8")]
CONFIG = [("pool_block_bits", "i8"), ("pool_size", "i8")]
STATE = [("pool_used", "i8")]
COUNTS = [("pool_peak", "i8"), ("pool_drops", "i8")]


@compiled
def _blocks(w, cum, top):
    """Return the blocks of a bitmap from ``cum`` to before ``top``."""
    bits = w.s.pool_block_bits
    return 0 if top <= cum else (top - 1) // bits - cum // bits + 1


@compiled
def _hold(w, q, blocks):
    s = w.s
    s.pool_used += blocks - q.pool_blocks
    q.pool_blocks = blocks
    w.s.pool_peak = max(w.s.pool_peak, s.pool_used)


@compiled
def arrive(w, p):
    """Process a packet at the receiver."""
    report_gap(w, p)
    if p.kind == PROBE:
        acknowledge(w, p.qp, True)
        return
    q = w.qp[p.qp]
    top = max(q.pool_top, p.psn + 1)
    need = _blocks(w, q.cum, top) if p.psn > q.cum else q.pool_blocks
    if need > q.pool_blocks and w.s.pool_used + need - q.pool_blocks > w.s.pool_size:
        w.s.pool_drops += 1
        answer(w, p.qp, NACK, p.psn, 0, True)
        return
    q.pool_top = top
    new = place(w, p.qp, p.psn)
    _hold(w, q, _blocks(w, q.cum, top))
    acknowledge(w, p.qp, p.last != 0 or not new)
