"""IRN: selective repeat over a bitmap of fixed size (Mittal et al., SIGCOMM 2018).

The sender has at most ``window`` packets outstanding, so that the receiver's bitmap suffices. More favourable than the
paper, where a packet lost twice waits for a timer: every loss is noticed by the order of transmission, and a lost
selective acknowledgement is made good by the next.
"""

from ...machine_code import compiled
from ..path.line import PROBE
from ..path.score import acknowledge, place
from .order import report_gap


@compiled
def arrive(w, p):
    """A packet at the receiver."""
    report_gap(w, p)
    new = p.kind != PROBE and place(w, p.qp, p.psn)
    acknowledge(w, p.qp, p.last != 0 or not new)
