"""``weft counters``: counters of a card, also with the names of ``ethtool -S`` and ``rdma statistic``."""

import json
from pathlib import Path

from weft.driver.verbs.linux_counters import CARD, linux_counters
from weft.hdl.contract import abi


def text(device: str, counters: dict[str, int]) -> str:
    """Return both views of a card's counters, by the names of :data:`weft.hdl.contract.abi.COUNTERS`, as text."""
    link = " ".join(f"{name} {value}" for name, value in linux_counters(CARD, counters).items())
    width = max(map(len, counters))
    lines = [f"link {device}/1 {link}", f"NIC statistics of {device}:"]
    return "\n".join([*lines, *(f"     {name + ':':<{width + 1}} {value}" for name, value in counters.items())])


class BadReport(Exception):
    """File that is not a report of a run; the message has the reason."""


def of_report(path: Path) -> dict[str, dict[str, int]]:
    """Return ``{"a": counters, "b": counters}`` of a report of ``weft sim``. Raises BadReport."""
    try:
        sides = json.loads(path.read_text())["counters"]
        return {side: {name: int(sides[side][name]) for name, _ in abi.COUNTERS} for side in ("a", "b")}
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise BadReport(f"{str(path)!r} is not a report of weft sim: {type(error).__name__}: {error}") from None
