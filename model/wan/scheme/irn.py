"""IRN: selective repeat over a bitmap of fixed size (Mittal et al., SIGCOMM 2018).

The sender has at most ``window`` packets outstanding, so that the receiver's bitmap suffices. The model is more
favourable than the paper, in which a packet lost twice waits for a timer: here the order of transmission reveals every
loss, and each selective acknowledgement repeats the contents of a lost one.
"""

from ...machine_code import compiled
from ..path.line import PROBE
from ..path.score import acknowledge, place
from .order import report_gap


@compiled
def arrive(w, p):
    """Process a packet at the receiver."""
    report_gap(w, p)
    new = p.kind != PROBE and place(w, p.qp, p.psn)
    acknowledge(w, p.qp, p.last != 0 or not new)
