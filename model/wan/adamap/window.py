"""Bitmap window of a QP, or of each lane of it: the PSNs that arrived. The rules: ``weft.model.functional.window``.

With ``lanes`` more than one, PSN p belongs to lane ``p mod lanes`` and has the number ``p // lanes`` there. With
``adapt``, the reorder distance doubles with each original that arrives late, and halves after a quiet time, so that a
lane adapts to the reordering of its path.
"""

import numpy as np

from weft.hdl.contract import wire

from ...machine_code import compiled
from .builder import add_hole

ACCEPT, DUPLICATE, STALE, LATE, MATCH = range(5)   # as in the functional model
WORDS = 8
WINDOW = [("base", "i8"), ("top", "i8"), ("cum", "i8"), ("late_at", "i8"), ("reorder", "i4"), ("open", "i4"),
          ("bits", "u8", (WORDS,))]
CONFIG = [("lanes", "i8"), ("window_bits", "i8"), ("reorder", "i8"), ("adapt", "i8"), ("quiet_slots", "i8")]
COUNTS = [("late_originals", "i8"), ("stale", "i8"), ("aliases", "i8")]
_ONE = np.uint64(1)
_PSN_BITS = wire.PSN_BITS


@compiled
def extend(psn, base, bits):
    """Return the number nearest to ``base`` that has these low bits."""
    half = 1 << (bits - 1)
    return base + ((psn - base + half) & ((1 << bits) - 1)) - half


@compiled
def _has(win, psn, bits):
    at = psn & (bits - 1)
    return win.bits[at >> 6] >> np.uint64(at & 63) & _ONE != 0


@compiled
def _clear(win, psn, bits):
    at = psn & (bits - 1)
    win.bits[at >> 6] &= ~(_ONE << np.uint64(at & 63))


@compiled
def slide(w, window, end):
    """Move the base to ``end`` if that is ahead; missing PSNs before it become holes."""
    win, bits = w.window[window], w.s.window_bits
    while win.base < end:
        if win.base < win.top and _has(win, win.base, bits):
            _clear(win, win.base, bits)
        else:
            add_hole(w, window, win.base)
        win.base += 1
    win.top = max(win.top, win.base)


@compiled
def _follow(win, bits):
    """Move the base past the PSNs that were received."""
    while win.base < win.top and _has(win, win.base, bits):
        _clear(win, win.base, bits)
        win.base += 1


@compiled
def passed(w, window, end):
    """Process a probe, which states that every PSN before ``end`` was sent."""
    slide(w, window, end)
    _follow(w.window[window], w.s.window_bits)


@compiled
def judge(w, window, psn, again):
    """Return the verdict for a packet from its low PSN bits; ``again``: it is a retransmission."""
    s, win = w.s, w.window[window]
    bits = s.window_bits
    low = _PSN_BITS
    lanes = s.lanes
    while lanes > 1:
        low -= 1
        lanes >>= 1
    at = extend(psn, win.base, low)
    if at != psn:
        w.s.aliases += 1
    if at < win.base and at < win.cum:
        return STALE
    if again:
        return MATCH if at < win.base else STALE
    if at < win.base:
        return LATE
    if at < win.top and _has(win, at, bits):
        return DUPLICATE
    slide(w, window, at - min(max(win.reorder, 1), bits) + 1)
    win.bits[(at & (bits - 1)) >> 6] |= _ONE << np.uint64(at & 63)
    win.top = max(win.top, at + 1)
    _follow(win, bits)
    return ACCEPT


@compiled
def adapt(w, window, verdict):
    """Adapt the reorder distance to the path."""
    s, win = w.s, w.window[window]
    if verdict == LATE:
        win.reorder = min(2 * win.reorder, s.window_bits)
        win.late_at = s.now
    elif s.now - win.late_at > s.quiet_slots:
        win.reorder = max(win.reorder // 2, 1)
        win.late_at = s.now
