"""Background traffic: packets of a Poisson process from one host to another, without congestion control."""

import math

import numpy as np

from ..machine_code import compiled
from ..wan.path.draw import uniform
from .events import BACKGROUND, schedule
from .host import next_of_host
from .packets import DATA, OTHER, QUEUES, new, push

SOURCE = [("port", "i4"), ("to", "i4"), ("bytes", "i4"), ("hash", "i8"), ("gap", "f8"), ("sent", "i8"),
          ("skipped", "i8")]
ARRIVALS = 3        # stream of random numbers
_QUEUED_MAX = 64    # packets at the port of the host; further ones are skipped


@compiled
def send(w, source):
    """Queue a packet of a source, and schedule the next one."""
    b = w.source[source]
    schedule(w, w.s.now - b.gap * math.log(1.0 - uniform(w.random, ARRIVALS)), BACKGROUND, source)
    if w.queue[b.port * QUEUES + DATA].count >= _QUEUED_MAX:
        b.skipped += 1
        return
    i = new(w, OTHER, np.int32(source), b.to, b.bytes)
    if i >= 0:
        b.sent += 1
        push(w, b.port, DATA, i)
        next_of_host(w, b.port)
