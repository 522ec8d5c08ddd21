"""Choice of the congestion control of a QP on a card."""

from ..congestion.algorithms import ALGORITHMS
from ..terms.errors import InvalidValue
from .flow_limit import FlowLimit

LINE_BPS = 100e9
UNMARKED = frozenset({"dcqcn"})      # they need marks, and cards send packets as Not-ECT, which switches do not mark
ON_CARDS = tuple(name for name in ALGORITHMS if name not in UNMARKED)


def why_not(name: str) -> str | None:
    """Return the reason for which cards do not have an algorithm, as the second half of a sentence, or None."""
    choices = ", ".join(ON_CARDS)
    if name in UNMARKED:
        return f"it needs ECN marks, and cards send Not-ECT, which no switch marks; choose one of {choices}"
    return None if name in ON_CARDS else f"choose one of {choices}"


def check_algorithm(name: str) -> None:
    """Raise InvalidValue if cards do not have an algorithm."""
    if reason := why_not(name):
        raise InvalidValue(f"congestion is {name!r}; {reason}")


def flow_limit(name: str, *, psn: int, pmtu: int, probe_ns: int) -> FlowLimit | None:
    """Return the limit of a QP, or None without congestion control.

    Parameters
    ----------
    name
        One of :data:`ON_CARDS`.
    psn
        First PSN.
    pmtu
        Bytes.
    probe_ns
        Probe time-out: at least two round trips.
    """
    if name == "none":
        return None
    return FlowLimit(name, pmtu=pmtu, psn=psn, line_bps=LINE_BPS, delay_ns=probe_ns // 2)
