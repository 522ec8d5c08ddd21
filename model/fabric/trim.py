"""Payload trimming: a switch whose buffer is full sends on the headers of a packet, as a control frame.

The headers overtake data, so a receiver learns of a loss before the packets ahead of it arrive. It notes the numbers of
trimmed transmissions, to count each loss once.
"""

from ..machine_code import inlined

AHEAD_MAX = 4096        # numbers from the expected one on that a receiver notes; it ignores headers of further ones
FLOW = [("trimmed", "i8")]


@inlined
def note(w, flow, number):
    """Note a trimmed transmission; return whether the receiver did not know of its loss."""
    f = w.flow[flow]
    if number < f.expected or number >= f.expected + AHEAD_MAX or w.ahead[flow, number % AHEAD_MAX]:
        return False
    w.ahead[flow, number % AHEAD_MAX] = 1
    f.trimmed += 1
    while w.ahead[flow, f.expected % AHEAD_MAX]:
        w.ahead[flow, f.expected % AHEAD_MAX] = 0
        f.expected += 1
    return True


@inlined
def known(w, flow, number):
    """Return the trimmed transmissions from the expected one to ``number``, and forget them."""
    f, count = w.flow[flow], 0
    for at in range(f.expected, min(number, f.expected + AHEAD_MAX)):
        count += w.ahead[flow, at % AHEAD_MAX]
        w.ahead[flow, at % AHEAD_MAX] = 0
    return count
