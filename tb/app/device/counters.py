"""``weft counters``: counters of a card, also with the names of ``ethtool -S`` and ``rdma statistic``."""

import json
from pathlib import Path

from weft.hdl.contract import abi

# Names of hardware counters in Linux's drivers efa and mlx5; each is the sum of these counters of the card.
RDMA = {
    "tx_pkts": ("tx_packets",),
    "tx_bytes": ("tx_bytes",),
    "rx_pkts": ("rx_packets",),
    "rx_bytes": ("rx_bytes",),
    "rx_drops": ("drop_buffer_full",),
    "retrans_pkts": ("tx_retransmissions",),
    "out_of_sequence": ("holes",),
    "duplicate_request": ("drop_duplicate", "drop_stale_psn"),
    "resp_remote_access_errors": ("drop_bad_key", "drop_out_of_range", "drop_no_permission", "drop_wrong_pd"),
    "resp_local_length_error": ("drop_length_mismatch",),
}


def rdma_names(counters: dict[str, int]) -> dict[str, int]:
    """Return the counters that ``rdma statistic`` would show, by its names."""
    return {name: sum(counters[source] for source in sources) for name, sources in RDMA.items()}


def text(device: str, counters: dict[str, int]) -> str:
    """Return both views of a card's counters, by the names of :data:`weft.hdl.contract.abi.COUNTERS`, as text."""
    link = " ".join(f"{name} {value}" for name, value in rdma_names(counters).items())
    width = max(map(len, counters))
    lines = [f"link {device}/1 {link}", f"NIC statistics of {device}:"]
    return "\n".join([*lines, *(f"     {name + ':':<{width + 1}} {value}" for name, value in counters.items())])


class BadReport(Exception):
    """File that is no report of a run; the message has the reason."""


def of_report(path: Path) -> dict[str, dict[str, int]]:
    """Return ``{"a": counters, "b": counters}`` of a report of ``weft sim``. Raises BadReport."""
    try:
        sides = json.loads(path.read_text())["counters"]
        return {side: {name: int(sides[side][name]) for name, _ in abi.COUNTERS} for side in ("a", "b")}
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise BadReport(f"{str(path)!r} is no report of weft sim: {type(error).__name__}: {error}") from None
