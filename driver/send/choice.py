"""Choice of the congestion control of a QP on a card."""

from ..congestion.on_cards import why_not
from ..terms.errors import InvalidValue
from .flow_limit import FlowLimit
from .paced_flow import PacedFlow

LINE_BPS = 100e9


def check_algorithm(name: str) -> None:
    """Raise InvalidValue if cards do not have an algorithm."""
    if reason := why_not(name):
        raise InvalidValue(f"congestion is {name!r}; {reason}")


def flow_limit(name: str, *, psn: int, pmtu: int, probe_ns: int, paced: bool) -> FlowLimit | None:
    """Return the limit of a QP, or None without congestion control.

    Parameters
    ----------
    name
        One of :data:`~weft.driver.congestion.on_cards.ON_CARDS`.
    psn
        First PSN.
    pmtu
        Bytes.
    probe_ns
        Probe time-out: at least two round trips.
    paced
        The card has a pacer.
    """
    if name == "none":
        return None
    kind = PacedFlow if paced else FlowLimit
    return kind(name, pmtu=pmtu, psn=psn, line_bps=LINE_BPS, delay_ns=probe_ns // 2)
