"""Clock of the experiment: one slot per packet, and the fixed order of the steps of a slot.

The steps are: arrivals at the receiver, timed actions of card and driver, messages at the sender, time-outs, and the
packet that the sender transmits. Each slot checks the time-out of one QP, in rotation, so a time-out can be late by
as many slots as there are QPs.
"""

from pathlib import Path
from typing import Any

from ..machine_code import compiled, entries
from .path.loss import start as start_losses
from .path.queue import BACK, due, pop
from .path.sender import send, wake
from .scheme.dispatch import arrive, expired, handle_control, own_time, sent

entry = entries((file for file in sorted(Path(__file__).parent.rglob("*.py"))
                 if b"import compiled" in file.read_bytes() or b"import inlined" in file.read_bytes()), nogil=True)


@compiled
def _start(w: Any) -> None:
    """Start the loss patterns, and make every QP ready to send."""
    start_losses(w)
    for qp in range(w.s.qps):
        wake(w, qp)


@entry
def run(w: Any, until: int) -> None:
    """Advance to slot ``until``, or until every QP has all of its data acknowledged, or an array is full."""
    s = w.s
    if s.now == 0:
        _start(w)
    while s.now < until and s.done < s.qps and s.overflow == 0:
        at = s.now & s.flight_mask
        i = w.flight[at].bucket
        w.flight[at].bucket = -1
        while i >= 0:
            p = w.flight[i]
            i = p.next
            arrive(w, p)
        own_time(w)
        at = due(w, BACK)
        while at >= 0:
            pop(w, BACK)
            handle_control(w, w.entry[at])
            at = due(w, BACK)
        qp = s.now % s.qps
        if w.qp[qp].deadline <= s.now and w.qp[qp].una < w.qp[qp].next:
            expired(w, qp)
        qp = send(w)
        if qp >= 0:
            sent(w, qp, w.qp[qp].next - 1)
        s.now += 1
