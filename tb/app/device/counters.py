"""``weft counters``: what a card counted, with the names that ``ethtool -S`` and ``rdma statistic`` have for it."""

import json

from weft.hdl.contract import abi

# Names of hardware counters of Linux's drivers efa and mlx5, and the card's counters whose sum each is.
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


def rdma_names(counters):
    """The counters that ``rdma statistic`` would show, by its names."""
    return {name: sum(counters[source] for source in sources) for name, sources in RDMA.items()}


def text(device, counters):
    """Both views of a card's counters, ``{name: value}`` of :data:`weft.hdl.contract.abi.COUNTERS`."""
    link = " ".join(f"{name} {value}" for name, value in rdma_names(counters).items())
    width = max(map(len, counters))
    lines = [f"link {device}/1 {link}", f"NIC statistics of {device}:"]
    return "\n".join([*lines, *(f"     {name + ':':<{width + 1}} {value}" for name, value in counters.items())])


class BadReport(Exception):
    """A file is no report of a run; the message says why."""


def of_report(path):
    """``{"a": counters, "b": counters}`` of a report that ``weft sim`` left.

    Raises
    ------
    BadReport
    """
    try:
        sides = json.loads(path.read_text())["counters"]
        return {side: {name: int(sides[side][name]) for name, _ in abi.COUNTERS} for side in ("a", "b")}
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise BadReport(f"{str(path)!r} is no report of weft sim: {type(error).__name__}: {error}") from None
