"""Syndromes of acknowledgements (IBTA 1.7, tables 45 and 46)."""

import enum

from weft.hdl.contract import wire

# IBTA table 46: time that an RNR NAK makes the sender wait, by timer code, in units of 10 µs.
RNR_TIMER_NS = tuple(10_000 * n for n in (
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152))

_NAK_BITS = wire.Syndrome.NAK_PSN_SEQUENCE >> 5
_CODE_BITS = 5
ASKS = 16     # questions for a path at once


class Answer(enum.Enum):
    """Kinds of acknowledgements."""

    ACK = enum.auto()
    RNR_NAK = enum.auto()
    SEQUENCE_NAK = enum.auto()
    NAK = enum.auto()
    UNKNOWN = enum.auto()


class PathQuery(enum.IntEnum):
    """Syndromes of frames between the drivers of two ends that look for a path; reserved by the standard.

    An ANSWER comes from a random UDP source port, and names that of its ASK in the field of the MSN. A TAKE comes from
    the port that its sender has taken, and names the port of the ANSWER, which the receiver takes.
    """

    ASK = 0x40
    ANSWER = 0x41
    TAKE = 0x42


def answer_of(syndrome):
    """Return the kind of an AETH ``syndrome``.

    Its low five bits are the credits of an ACK (not used here), the timer code of an RNR NAK, or the code of a NAK.
    """
    kind, code = syndrome >> _CODE_BITS, syndrome % (1 << _CODE_BITS)
    if kind == wire.Syndrome.ACK >> _CODE_BITS:
        return Answer.ACK
    if kind == wire.Syndrome.RNR_NAK >> _CODE_BITS:
        return Answer.RNR_NAK
    if kind != _NAK_BITS or code > wire.Syndrome.NAK_REMOTE_OPERATIONAL % (1 << _CODE_BITS):
        return Answer.UNKNOWN
    return Answer.NAK if code else Answer.SEQUENCE_NAK


ANSWERS = [answer_of(syndrome) for syndrome in range(1 << 8)]     # by syndrome


def rnr_syndrome(timer):
    """Return the AETH syndrome of an RNR NAK with this timer code."""
    return wire.Syndrome.RNR_NAK | timer


def rnr_wait_ns(syndrome):
    """Return the nanoseconds that an RNR NAK makes the sender wait."""
    return RNR_TIMER_NS[syndrome % (1 << _CODE_BITS)]
