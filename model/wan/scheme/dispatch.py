"""Dispatch of events to the configured scheme, so that one compiled engine serves all schemes."""

from ...machine_code import compiled, inlined
from ..path import score
from ..path.sender import probe
from . import adamap, go_back_n, selective

GO_BACK_N, IRN, MELO, DCP, TIMER_ONLY, ORACLE, ADAMAP = range(7)
QP = go_back_n.QP + selective.QP + [("rsn_sent", "i8")]
CONFIG = [("scheme", "i8")] + selective.CONFIG
STATE = selective.STATE
COUNTS = selective.COUNTS


@compiled
def arrive(w, p):
    """Process a packet at its time of arrival, also if it was lost."""
    scheme = w.s.scheme
    if p.lost:
        if scheme == ORACLE:
            selective.oracle_vanish(w, p)
        elif scheme == DCP:
            selective.dcp_vanish(w, p)
    elif scheme == ADAMAP:
        adamap.arrive(w, p)
    elif scheme == GO_BACK_N:
        go_back_n.arrive(w, p)
    elif scheme == IRN:
        selective.irn_arrive(w, p)
    elif scheme == MELO:
        selective.melo_arrive(w, p)
    else:
        score.arrive(w, p)


@inlined
def own_time(w):
    """Run the actions that a scheme takes in every slot."""
    scheme = w.s.scheme
    if scheme == ADAMAP:
        adamap.host(w)
    elif scheme in (TIMER_ONLY, DCP):
        selective.overdue(w)


@compiled
def handle_control(w, m):
    """Process a message at the sender."""
    scheme = w.s.scheme
    if scheme == ADAMAP:
        adamap.handle_control(w, m)
    elif scheme == GO_BACK_N:
        go_back_n.handle_control(w, m)
    else:
        selective.handle_control(w, m)


@inlined
def sent(w, qp, psn):
    """Process the transmission of a new packet."""
    scheme = w.s.scheme
    if scheme == TIMER_ONLY:
        selective.timer_only_sent(w, qp, psn)
    elif scheme == DCP:
        selective.dcp_sent(w, qp, psn)


@compiled
def expired(w, qp):
    """Process the time-out of a QP without new acknowledgements."""
    scheme = w.s.scheme
    w.s.expiries += 1
    w.qp[qp].deadline = w.s.now + w.s.time_out
    if scheme == GO_BACK_N:
        go_back_n.go_back(w, qp)
    elif scheme in (IRN, MELO):
        selective.expired(w, qp)
    else:
        probe(w, qp)
