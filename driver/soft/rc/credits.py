"""Encoding of the receives that a responder has left (IBTA 1.7, chapter 9.7.7.2 and table 45)."""

import bisect

from weft.hdl.contract.wire import Syndrome

CREDITS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
           6144, 8192, 12288, 16384, 24576, 32768)
UNLIMITED = int(Syndrome.ACK)   # code 31: the field is not valid


def credit_code(count):
    """Return the syndrome of an ACK for ``count`` receives, or for the next lower number that has a code."""
    return bisect.bisect_right(CREDITS, count) - 1


def credit_count(syndrome):
    """Return the number of receives in the syndrome of an ACK, or None if it has none."""
    return None if syndrome == UNLIMITED else CREDITS[syndrome]
