"""Payload trimming: a switch whose buffer is full sends on the headers of a packet, as a control frame.

The headers overtake data, so a receiver learns of a loss before the packets ahead of it arrive. It keeps the numbers
of trimmed transmissions until a later one arrives, to count each loss once. Both are in the order of transmission on
a path that keeps order.
"""

from ..machine_code import inlined

AHEAD_MAX = 1024        # trimmed transmissions beyond the expected one that a receiver knows; it ignores further ones
FLOW = [("trim_first", "i8"), ("trim_end", "i8"), ("trimmed", "i8")]


@inlined
def note(w, flow, number):
    """Note a trimmed transmission; return whether the receiver did not know of its loss."""
    f = w.flow[flow]
    if number < f.expected or f.trim_end - f.trim_first >= AHEAD_MAX:
        return False
    w.ahead[flow, f.trim_end % AHEAD_MAX] = number
    f.trim_end += 1
    f.trimmed += 1
    return True


@inlined
def known(w, flow, number):
    """Return the trimmed transmissions that a gap before ``number`` contains, and forget them."""
    f, count = w.flow[flow], 0
    while f.trim_first < f.trim_end and w.ahead[flow, f.trim_first % AHEAD_MAX] < number:
        f.trim_first += 1
        count += 1
    return count
