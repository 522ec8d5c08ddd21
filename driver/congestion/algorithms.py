"""Congestion control algorithms by name."""

from typing import Any

from .algorithm import Algorithm
from .dcqcn import Dcqcn, DcqcnSettings
from .none import NoControl, NoneSettings
from .rate_match import RateMatch, RateMatchSettings
from .swift import Swift, SwiftSettings

ALGORITHMS: dict[str, tuple[type[Any], type[Any]]] = {     # class, and class of its settings
    "none": (NoControl, NoneSettings), "dcqcn": (Dcqcn, DcqcnSettings), "swift": (Swift, SwiftSettings),
    "rate-match": (RateMatch, RateMatchSettings)}

MARKED = frozenset({"dcqcn"})       # their signal are marks of switches: packets leave as ECT(0)


def create(name: str, line_bps: float, delay_ns: float, **settings: Any) -> Algorithm:
    """Return an algorithm for a connection.

    Parameters
    ----------
    name
        Key of :data:`ALGORITHMS`.
    line_bps
        Rate of the port, in bit/s.
    delay_ns
        Round trip time of the empty path, from the set-up of the connection.
    settings
        Fields of the settings that differ from their defaults.

    Raises
    ------
    BadSetting
    """
    algorithm, kind = ALGORITHMS[name]
    found: Algorithm = algorithm(kind(**settings), line_bps, delay_ns)
    return found
