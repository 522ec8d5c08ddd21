"""``weft counters``: counters of a card, also with the names of ``ethtool -S`` and ``rdma statistic``."""

import json
from pathlib import Path

from weft.driver.verbs.linux_counters import CARD, DRIVER, linux_counters
from weft.hdl.contract import abi


def text(device: str, counters: dict[str, int]) -> str:
    """Return both views of the counters of a card and its driver as text.

    ``counters`` has the names of :data:`weft.hdl.contract.abi.COUNTERS`, and the sources of
    :data:`~weft.driver.verbs.linux_counters.DRIVER`.
    """
    link = " ".join(f"{name} {value}" for name, value in linux_counters(CARD | DRIVER, counters).items())
    names = [name for name, _ in abi.COUNTERS]
    width = max(map(len, names))
    lines = [f"link {device}/1 {link}", f"NIC statistics of {device}:"]
    return "\n".join([*lines, *(f"     {name + ':':<{width + 1}} {counters[name]}" for name in names)])


class BadReport(Exception):
    """File that is not a report of a run; the message has the reason."""


def of_report(path: Path) -> dict[str, dict[str, int]]:
    """Return ``{"a": counters, "b": counters}``, as of :func:`text`, of a report of ``weft sim``. Raises BadReport."""
    try:
        report = json.loads(path.read_text())
        sides, drivers = report["counters"], report.get("driver", {})     # which older reports lack
        return {side: {name: int(sides[side][name]) for name, _ in abi.COUNTERS}
                | {name: int(count) for name, count in drivers.get(side, {}).items()} for side in ("a", "b")}
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise BadReport(f"{str(path)!r} is not a report of weft sim: {type(error).__name__}: {error}") from None
