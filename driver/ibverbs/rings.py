"""Memory that a program and the daemon share: rings with one producer and one consumer each, and a bell.

All numbers are little-endian, at multiples of their size. ``prod`` and ``cons`` are free running, 32 bits, and alone on
their cache lines; slot *n* of a ring is at ``RING_HEADER.size_bytes + n % slots * slot_bytes``.
"""

import enum

from weft.hdl.contract.layout import Field, Layout

CACHE_LINE_BITS = 512


def _alone(name, doc):
    """Return the fields of a word that is alone on its cache line."""
    return Field(name, 32, doc), Field(f"_{name}", CACHE_LINE_BITS - 32)


BELL = Layout("bell", "One for each open context.", [
    *_alone("posted", "Counts what the program posted to any ring, and rings it emptied."),
    *_alone("asleep", "The daemon sleeps until a doorbell, for posts of the kinds in ``Doorbell``: the program that "
                      "clears this field rings."),
    *_alone("notified", "Number of completions that the daemon wrote into any queue."),
    *_alone("waiting", "A thread of the program sleeps, until its doorbell is written."),
    *_alone("waited", "Value of ``notified`` when a thread last went to sleep: the program waits until it changes."),
    Field("clock_ns", 64, "Time of the program when it last posted or went to sleep, in simulated time; else 0."),
    Field("_clock_ns", CACHE_LINE_BITS - 64),
], size_bytes=384)

CLOCK = Layout("clock", "The file ``NAME.clock`` of a host in simulated time; programs only read it.", [
    Field("now_ns", 64, "Simulated time, from the start of the daemon on.")], size_bytes=8)

RING_HEADER = Layout("ring", "In front of the slots of a ring.", [
    *_alone("prod", "Slots ever filled."),
    *_alone("cons", "Slots ever emptied."),
    *_alone("done", "Of work requests: how many are done with; a request takes part of its queue until then."),
    *_alone("armed", "Of completions: the program's last wish for an event, a serial number times two, plus one if a "
                     "solicited one is meant; ``done`` is the last that was fulfilled."),
], size_bytes=256)

SEND_SLOT = Layout("send_slot", "A send work request; its SGEs, or its inline data, follow.", [
    Field("wr_id", 64), Field("remote_addr", 64, "Of a datagram: IPv4 address, above it the flow label."),
    Field("compare_add", 64, "Of a datagram: QPN."), Field("swap", 64), Field("rkey", 32, "Of a datagram: Q_Key."),
    Field("imm_data", 32, "In the host's byte order."), Field("opcode", 8), Field("flags", 8), Field("num_sge", 8),
    Field("_reserved", 8), Field("inline_length", 32, "Bytes of inline data, with the flag INLINE."),
], size_bytes=48)

RECV_SLOT = Layout("recv_slot", "A receive work request; its SGEs follow.", [
    Field("wr_id", 64), Field("num_sge", 32), Field("_reserved", 32)], size_bytes=16)

SGE_SLOT = Layout("sge_slot", "A scatter-gather entry.", [
    Field("addr", 64), Field("length", 32), Field("lkey", 32)], size_bytes=16)

WC_SLOT = Layout("wc_slot", "A completion.", [
    Field("wr_id", 64), Field("status", 32), Field("opcode", 32), Field("vendor_err", 32), Field("byte_len", 32),
    Field("imm_data", 32, "In the host's byte order."), Field("qp_num", 32), Field("wc_flags", 32),
    Field("src_qp", 32, "Of a datagram."), Field("sl", 8, "Of a datagram: kind of its header."),
    Field("_reserved", 56)], size_bytes=48)

COMP_EVENT = Layout("comp_event", "What is read from a completion channel.", [
    Field("user", 64, "What the program named its completion queue.")], size_bytes=8)
ASYNC_EVENT = Layout("async_event", "What is read from the file of asynchronous events.", [
    Field("user", 64, "What the program named the object, or the number of the port."), Field("event_type", 32),
    Field("_reserved", 32)], size_bytes=16)

SHARED = (BELL, CLOCK, RING_HEADER, SEND_SLOT, RECV_SLOT, SGE_SLOT, WC_SLOT, COMP_EVENT, ASYNC_EVENT)


class Doorbell(enum.IntFlag):
    """Posts that end the daemon's sleep. Most receive requests wait in their ring until a message comes."""

    SENDS = 1
    RECEIVES = 2


class Limit(enum.IntEnum):
    """Limits of requests of a program, which protect the daemon's memory."""

    SLOTS_LOG2 = 22
