"""Recovery of losses at the ends of a flow.

``adamap``: every transmission that the receiver misses is sent another time, and nothing limits how far apart holes
are. ``go-back-n``: the receiver drops packets out of order, and the sender goes back to the first missing one; from the
number of times that it did, which no real packet carries, the receiver knows that a packet was lost again. ``irn``:
selective repeat, of at most ``window`` packets (Mittal et al., SIGCOMM 2018). As with the others, the order of
transmissions reveals every loss; in the paper a packet lost twice waits for a timer.

PSNs count from 0 and do not wrap around. A transmission has a number, which differs from its PSN after a loss.
"""

from ..machine_code import compiled, inlined

ADAMAP, GO_BACK_N, IRN = range(3)
NAMES = "adamap", "go-back-n", "irn"
# `next_psn`, `una`, `epoch`, `again_first`, `again_end` and `resent` are the sender's, the others the receiver's.
FLOW = [("next_psn", "i8"), ("una", "i8"), ("epoch", "i8"), ("again_first", "i8"), ("again_end", "i8"),
        ("resent", "i8"), ("cum", "i8"), ("placed", "i8"), ("refused_epoch", "i8")]
# Of an ACK: the receiver's `cum` and `refused_epoch`, and the count of lost numbers directly before `number`.
PACKET = [("psn", "i8"), ("epoch", "i8"), ("gap", "i8")]
CONFIG = [("recovery", "u1"), ("window", "i8"), ("span", "i8")]       # span: of the arrays, at least twice the window


@inlined
def has_packet(w, f):
    """Return whether a flow has a packet to send, were it not for congestion control."""
    if w.s.recovery == ADAMAP:
        return f.sent - f.missing < f.total
    return f.again_first < f.again_end or (f.next_psn < f.total and f.next_psn - f.una < w.s.window)


@compiled
def fill(w, flow, i):
    """Choose the PSN of a transmission: the oldest lost packet that is still missing, or a new one."""
    f, p, s = w.flow[flow], w.packet[i], w.s
    p.epoch = f.epoch
    if s.recovery == ADAMAP:
        return
    if f.again_first < f.again_end:
        p.psn = w.again[flow, f.again_first % s.span]
        f.again_first += 1
        f.resent += 1
        _skip_received(w, flow)
    else:
        p.psn = f.next_psn
        f.next_psn += 1
    w.number[flow, f.sent % s.span] = p.psn


@compiled
def place(w, flow, p):
    """Process a data packet at the receiver; return whether it must be answered at once."""
    f, s = w.flow[flow], w.s
    if s.recovery == ADAMAP:
        f.placed += 1
        return False
    if s.recovery == GO_BACK_N:
        if p.psn == f.cum:
            f.cum += 1
            f.placed += 1
            f.refused_epoch = -1
            return False
        if p.psn > f.cum and f.refused_epoch < p.epoch:
            f.refused_epoch = p.epoch
        return True
    at = p.psn % s.span
    if p.psn < f.cum or w.got[flow, at]:
        return True
    w.got[flow, at] = 1
    f.placed += 1
    while w.got[flow, f.cum % s.span]:
        w.got[flow, f.cum % s.span] = 0
        f.cum += 1
    return False


@compiled
def reported(w, flow, p, in_flight):
    """Process an acknowledgement at the sender, which leaves ``in_flight`` packets in flight."""
    f, s = w.flow[flow], w.s
    if s.recovery == ADAMAP:
        f.una = f.received
        return
    f.una = max(f.una, p.psn)
    f.next_psn = max(f.next_psn, f.una)
    if s.recovery == GO_BACK_N:
        if (p.epoch == f.epoch or in_flight == 0) and f.una < f.next_psn:
            f.resent += f.next_psn - f.una
            f.next_psn = f.una
            f.epoch += 1
        return
    for number in range(p.number - p.gap, p.number):
        _again(w, flow, w.number[flow, number % s.span])
    _skip_received(w, flow)
    if in_flight == 0 and f.again_first == f.again_end and f.una < f.next_psn:
        _again(w, flow, f.una)      # the report of its loss was lost


@inlined
def _again(w, flow, psn):
    f = w.flow[flow]
    w.again[flow, f.again_end % w.s.span] = psn
    f.again_end += 1


@inlined
def _skip_received(w, flow):
    """Remove what the receiver has from the head of the queue of packets to send again."""
    f = w.flow[flow]
    while f.again_first < f.again_end and w.again[flow, f.again_first % w.s.span] < f.una:
        f.again_first += 1
