"""Choice of the congestion control of a QP on a card."""

from ..congestion.algorithms import ALGORITHMS
from ..terms.errors import InvalidValue
from .flow_limit import FlowLimit
from .paced_flow import PacedFlow

LINE_BPS = 100e9


def check_algorithm(name: str) -> None:
    """Raise InvalidValue if there is no such algorithm."""
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise InvalidValue(f"congestion is {name!r}; choose one of {', '.join(ALGORITHMS)}")


def flow_limit(name: str, *, psn: int, pmtu: int, probe_ns: int, cnp_interval_ns: int,
               paced: bool) -> FlowLimit | None:
    """Return the limit of a QP, or None without congestion control.

    Parameters
    ----------
    name
        Key of :data:`~weft.driver.congestion.algorithms.ALGORITHMS`.
    psn
        First PSN.
    pmtu
        Bytes.
    probe_ns
        Probe time-out: at least two round trips.
    cnp_interval_ns
        Interval in which the peer sends one congestion notification.
    paced
        The card has a pacer.
    """
    if name == "none":
        return None
    kind = PacedFlow if paced else FlowLimit
    return kind(name, pmtu=pmtu, psn=psn, line_bps=LINE_BPS, delay_ns=probe_ns // 2, cnp_interval_ns=cnp_interval_ns)
