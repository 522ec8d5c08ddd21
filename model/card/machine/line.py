"""The line between two compiled cards, and what a packet meets that comes as it should: in order, to memory that is
its QP's. All others are Python's."""

from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import SHED_UNTIL_EIGHTHS

from ...machine_code import compiled, inlined
from ..receive import ASK_PACE, TRANSLATION, WINDOW
from ..timing import BEAT_BYTES, HALF_PS, LINE_OVERHEAD_BYTES, PREAMBLE_BYTES
from ..write_engine import STREAM
from .events import edge, push
from .frames import copy_pages, free_frame
from .state import BUFFERED, JUDGE, PAGE, STOOD
from .table import world
from .write_engine import NO_KEY, behind, stream

KEY_TAG_BITS, REMOTE_WRITE = abi.KEY_TAG_BITS, int(abi.AccessFlag.REMOTE_WRITE)
RTR, RTS = int(abi.QpState.RTR), int(abi.QpState.RTS)
PSN_MASK = (1 << wire.PSN_BITS) - 1
SHORTEST = wire.MIN_FRAME_BYTES


@inlined
def line(w, c, length, ready, beats):
    """A frame goes to the line; when its last byte is there."""
    card = w.card[c]
    start = max(card.line_free, ready)
    card.line_free = start + (max(length, SHORTEST) + LINE_OVERHEAD_BYTES) * 8 / card.gbps
    while card.buffered_head != card.buffered_tail:
        first = w.buffered[c, card.buffered_head & (BUFFERED - 1)]
        if first[1] > w.g[0].now:
            break
        card.beats -= int(first[2])
        card.buffered_head += 1
    if card.buffered_tail - card.buffered_head == BUFFERED:
        raise OverflowError("too many frames in the send buffer of a compiled card")
    one = w.buffered[c, card.buffered_tail & (BUFFERED - 1)]
    one[0], one[1], one[2] = start, start + length * 8 / card.gbps, beats
    card.buffered_tail += 1
    card.beats += beats
    return start + (PREAMBLE_BYTES + length) * 8 / card.gbps


@compiled
def send(t, c, handle, time):
    """A frame enters the link of a card, which loses it or delivers it."""
    w = world(t)
    card, found = w.card[c], w.frame[handle & (len(w.frame) - 1)]
    chance = w.line_draws[c, card.line_draw]
    card.line_draw += 4
    lost = chance < card.loss
    work = w.work[found.work]
    kind = 2 * work.retransmit + (1 if work.imm and found.last else 0)
    if kind == 0:
        card.sent0 += 1
        card.lost0 += lost
    elif kind == 1:
        card.sent1 += 1
        card.lost1 += lost
    elif kind == 2:
        card.sent2 += 1
        card.lost2 += lost
    else:
        card.sent3 += 1
        card.lost3 += lost
    if lost:
        free_frame(w, handle)
    else:
        deliver(w.t, card.peer, handle, time + card.delay)


@compiled
def judged_at(t, c, read, asked):
    """When a packet is judged that was read, and whose translation may be asked for, at these times."""
    w = world(t)
    card, stood = w.card[c], w.stood
    asked = max(asked, card.asked_at + ASK_PACE)
    while card.stood_head != card.stood_tail and stood[c, card.stood_head & (STOOD - 1), 1] <= asked:
        card.stood_head += 1
    if card.stood_head != card.stood_tail and stood[c, card.stood_head & (STOOD - 1), 0] <= asked:
        asked = stood[c, card.stood_head & (STOOD - 1), 1]
        card.stood_head += 1
    card.asked_at = asked
    held = 0.0
    for at in range(card.stood_head, card.stood_tail):
        held += stood[c, at & (STOOD - 1), 1] - stood[c, at & (STOOD - 1), 0]
    answered = asked + TRANSLATION + held
    if answered < read:
        if card.stood_tail - card.stood_head == STOOD:
            raise OverflowError("too many translations of a compiled card wait for their packets")
        one = stood[c, card.stood_tail & (STOOD - 1)]
        one[0], one[1] = answered, read
        card.stood_tail += 1
    return max(read, answered)


@compiled
def deliver(t, c, handle, time):
    """A frame arrives at a card, whose window will judge it."""
    w = world(t)
    card, g, mask = w.card[c], w.g[0], len(w.frame) - 1
    found = w.frame[handle & mask]
    begin = max(card.mac_free, time) + PREAMBLE_BYTES * 8 / card.gbps
    card.mac_free = begin + (found.bytes + LINE_OVERHEAD_BYTES - PREAMBLE_BYTES) * 8 / card.gbps
    last = begin + (found.bytes - 1) // BEAT_BYTES * BEAT_BYTES * 8 / card.gbps
    judged = judged_at(w.t, c, edge(last - HALF_PS) + card.judge,
                       edge(begin + BEAT_BYTES * 8 / card.gbps - HALF_PS) + card.asked - TRANSLATION)
    found.judged, found.number, found.next = max(judged, g.now), g.number, -1
    g.number += 1
    if card.rx_count:
        w.frame[card.rx_tail & mask].next = handle
    else:
        card.rx_head = handle
        push(w.t, found.judged, found.number, JUDGE, c, 0)
    card.rx_tail = handle
    card.rx_count += 1


@inlined
def next_arrival(w, c):
    """The frame that is judged now; the one behind it is the next event."""
    card, mask = w.card[c], len(w.frame) - 1
    handle = card.rx_head
    card.rx_count -= 1
    if card.rx_count:
        card.rx_head = w.frame[handle & mask].next
        behind = w.frame[card.rx_head & mask]
        push(w.t, max(behind.judged, w.g[0].now), behind.number, JUDGE, c, 0)
    return handle


@compiled
def judge(t, c, handle):
    """Place a packet that comes as it should; whether it was one."""
    w = world(t)
    card, found = w.card[c], w.frame[handle & (len(w.frame) - 1)]
    work, now, length = w.work[found.work], w.g[0].now, found.length
    if card.slow or work.odd or work.retransmit or (found.last and work.ack_req) or length == 0:
        return False
    if 8 * (behind(w, c) * card.gbps / 8 / BEAT_BYTES) >= SHED_UNTIL_EIGHTHS * card.rx_beats:
        return False
    if (card.mac and card.mac != work.dst_mac) or (card.ip and card.ip != work.dst_ip):
        return False
    index, key = work.dqpn & ((1 << card.qpn_width) - 1), work.rkey >> KEY_TAG_BITS
    if index >= w.qp.shape[1] or key >= w.mr.shape[1]:
        return False
    qp, mr = w.qp[c, index], w.mr[c, key]
    if (not qp.plain or (qp.state != RTR and qp.state != RTS) or qp.generation != work.dqpn >> card.qpn_width
            or qp.ip != work.src_ip or (qp.psn ^ found.psn) & PSN_MASK):
        return False
    va = found.remote
    if (not mr.small or mr.tag != work.rkey & ((1 << KEY_TAG_BITS) - 1) or mr.pd != qp.pd
            or va < mr.va or va + length > mr.va + mr.length or not mr.access & qp.access & REMOTE_WRITE):
        return False
    first_page = mr.pte - mr.va // PAGE
    for page in range(va // PAGE, (va + length - 1) // PAGE + 1):
        if w.page[c, first_page + page] == 0:
            return False
    copy_pages(w, c, first_page, va, length, w.bytes.ctypes.data + found.at, True)
    qp.psn += 1
    card.rx_frames += 1
    card.rx_packets += 1
    card.rx_bytes += length
    card.window_free = now + WINDOW
    first = min(length, PAGE - va % PAGE)
    stream(w.t, c, now + card.place, STREAM, va, first, 0, length - first, NO_KEY)
    free_frame(w, handle)
    return True
