"""Hosts: paced senders that share a port, receivers, and the recovery of losses.

A transmission has a number; one that is missing when a later one of its flow arrives is lost, as for the card on a
path that keeps order. The receiver reports totals, so that a lost report delays information and loses none. A sender
without progress probes after a time-out. :mod:`.recovery` chooses what is sent after a loss.
"""

from ..machine_code import compiled, inlined
from . import recovery, rules, trim
from .events import EXPIRED, PACED, schedule
from .forwarding import HASH
from .link import begin
from .packets import ACK, CNP, CONTROL, DATA, DATA_PACKET, OTHER, PROBE, TRIMMED, discard, new, pop, push

IDLE, WAITING, READY = range(3)     # waits for an acknowledgement, for its time, for the port
# Packets are counted. `received` and `missing` are those of the sender, which learns them from the receiver's `in_`.
FLOW = [("source", "i4"), ("destination", "i4"), ("port", "i4"), ("back_port", "i4"), ("algorithm", "i4"),
        ("hash", "i8"), ("state", "u1"), ("timer", "u1"), ("next", "i4"), ("rate", "f8"), ("limit", "i8"),
        ("next_at", "f8"), ("deadline", "f8"), ("total", "i8"), ("sent", "i8"), ("received", "i8"), ("missing", "i8"),
        ("done_at", "f8"), ("time_outs", "i8"), ("cnps", "i8"), ("in_flight_peak", "i8"), ("expected", "i8"),
        ("in_received", "i8"), ("in_missing", "i8"), ("in_marked", "i8"), ("late", "i8"), ("cnp_at", "f8"),
        ("rtt_sum", "f8"), ("rtt_count", "i8"), *recovery.FLOW, *trim.FLOW]
PORT = [("ready_head", "i4"), ("ready_tail", "i4")]
CONFIG = [("packet_bytes", "i8"), ("control_bytes", "i8"), ("ack_every", "i8"), ("cnp_interval", "f8"),
          ("time_out", "f8"), ("repath", "u1"), *recovery.CONFIG]
STATE = [("done", "i8"), ("other_packets", "i8")]
_SLOW = 1 / 8       # of the time-out: packets at a longer distance are acknowledged one by one
_STEP = 0x9E3779B9


@inlined
def in_flight(f):
    """Return the packets that are in flight as far as the sender knows."""
    return f.sent - f.received - f.missing


@inlined
def _may_send(w, f):
    outstanding = in_flight(f)
    return recovery.has_packet(w, f) and (outstanding == 0 or (outstanding + 1) * w.s.packet_bytes <= f.limit)


@compiled
def wake(w, flow):
    """Give an idle flow that may send its place at the port, now or at its time."""
    f = w.flow[flow]
    if f.state != IDLE or not _may_send(w, f):
        return
    if f.next_at > w.s.now:
        f.state = WAITING
        schedule(w, f.next_at, PACED, flow)
        return
    p = w.port[f.port]
    f.state, f.next = READY, -1
    if p.ready_head < 0:
        p.ready_head = flow
    else:
        w.flow[p.ready_tail].next = flow
    p.ready_tail = flow


@inlined
def _transmit(w, port, flow):
    """Send the next packet of a flow."""
    f, s = w.flow[flow], w.s
    i = new(w, DATA_PACKET, flow, f.destination, s.packet_bytes)
    if i < 0:
        return
    p, gap = w.packet[i], s.packet_bytes / f.rate
    p.number, p.sent_at = f.sent, s.now
    recovery.fill(w, flow, i)
    f.sent += 1
    f.next_at = max(f.next_at, s.now - gap) + gap
    f.in_flight_peak = max(f.in_flight_peak, in_flight(f))
    p.ask = p.number % s.ack_every == 0 or not _may_send(w, f) or s.ack_every * gap > s.time_out * _SLOW
    begin(w, port, i)
    if not f.timer:
        f.timer, f.deadline = 1, s.now + s.time_out
        schedule(w, f.deadline, EXPIRED, flow)
    wake(w, flow)


@compiled
def next_of_host(w, port):
    """Transmit the next packet of a host: control frames, then queued packets, then flows in turn."""
    p = w.port[port]
    if p.busy or not p.up:
        return
    i = pop(w, port, CONTROL)
    if i < 0 and not p.paused:
        i = pop(w, port, DATA)
    if i >= 0:
        begin(w, port, i)
    if p.paused:
        return
    while p.ready_head >= 0 and not p.busy and w.s.overflow == 0:
        flow = p.ready_head
        f = w.flow[flow]
        p.ready_head, f.state = f.next, IDLE
        if _may_send(w, f):
            _transmit(w, port, flow)


@compiled
def expired(w, flow):
    """Probe if the deadline of a flow has passed; with ``repath``, by another path if there is one."""
    f, s = w.flow[flow], w.s
    f.timer = in_flight(f) > 0
    if not f.timer:
        return
    if f.deadline <= s.now:
        f.time_outs += 1
        f.deadline = s.now + s.time_out
        if s.repath:
            f.hash = (f.hash + _STEP) & HASH
        i = new(w, PROBE, flow, f.destination, s.control_bytes)
        if i >= 0:
            w.packet[i].number, w.packet[i].sent_at = f.sent, s.now
            push(w, f.port, DATA, i)
            next_of_host(w, f.port)
    schedule(w, f.deadline, EXPIRED, flow)


@compiled
def _answer(w, kind, flow, sent_at, number, gap):
    """Send a control frame to the sender of a flow; ``gap`` transmissions before ``number`` are lost."""
    f = w.flow[flow]
    i = new(w, kind, flow, f.source, w.s.control_bytes)
    if i < 0:
        return
    p = w.packet[i]
    p.number, p.received, p.missing, p.sent_at = number, f.in_received, f.in_missing, sent_at
    p.psn, p.epoch, p.gap = f.cum, f.refused_epoch, gap
    push(w, f.back_port, CONTROL, i)
    next_of_host(w, f.back_port)


@inlined
def _acknowledged(w, p):
    """Process the receiver's totals."""
    f, s = w.flow[p.flow], w.s
    acked, lost, before = p.received - f.received, p.missing - f.missing, in_flight(f)
    if acked < 0 or lost < 0 or acked + lost == 0:
        return
    f.received, f.missing, f.deadline = p.received, p.missing, s.now + s.time_out
    rtt = s.now - p.sent_at
    f.rtt_sum += rtt
    f.rtt_count += 1
    rules.on_delay(w, p.flow, rtt)
    if lost > 0:
        rules.on_loss(w, p.flow, lost * s.packet_bytes)
    if acked > 0:
        rules.on_ack(w, p.flow, acked * s.packet_bytes, before * s.packet_bytes)
    recovery.reported(w, p.flow, p, in_flight(f))
    if f.una >= f.total and f.done_at < 0:
        f.done_at = s.now
        s.done += 1


@inlined
def _receive_data(w, p):
    """Count a packet of a flow, and answer."""
    f, s = w.flow[p.flow], w.s
    late, gap, again = p.number < f.expected, max(0, p.number - f.expected), False
    gap -= trim.known(w, p.flow, p.number)
    if late:
        f.late += 1
    else:
        f.in_missing += gap
        f.expected = p.number
        if p.kind == DATA_PACKET:
            f.in_received += 1
            f.expected += 1
    if p.kind == DATA_PACKET and not (late and s.recovery == recovery.ADAMAP):
        again = recovery.place(w, p.flow, p)
    if p.marked:
        f.in_marked += 1
        if s.now - f.cnp_at >= s.cnp_interval:
            f.cnp_at = s.now
            _answer(w, CNP, p.flow, p.sent_at, p.number, 0)
    if p.ask or gap or late or again or p.kind == PROBE:
        _answer(w, ACK, p.flow, p.sent_at, p.number, gap)


@inlined
def _receive_trimmed(w, p):
    """Report a transmission as lost whose headers arrived."""
    if trim.note(w, p.flow, p.number):
        w.flow[p.flow].in_missing += 1
        _answer(w, ACK, p.flow, p.sent_at, p.number, 0)


@compiled
def receive(w, i):
    """Process a packet that has reached its host."""
    p = w.packet[i]
    flow, kind = p.flow, p.kind
    if kind == OTHER:
        w.s.other_packets += 1
    elif kind in (DATA_PACKET, PROBE):
        _receive_data(w, p)
    elif kind == TRIMMED:
        _receive_trimmed(w, p)
    else:
        if kind == ACK:
            _acknowledged(w, p)
        else:
            w.flow[flow].cnps += 1
            rules.on_cnp(w, flow)
        wake(w, flow)
        next_of_host(w, w.flow[flow].port)
    discard(w, i)
