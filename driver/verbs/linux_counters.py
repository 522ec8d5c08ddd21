"""Counters of a card and its driver under the names that Linux gives them.

Each is the sum of counters of the card (:data:`weft.hdl.contract.abi.COUNTERS`) or of counts of its driver
(:class:`~weft.driver.engine.card_engine.CardEngine`). Names without an equivalent are missing. ``path_changes`` is
Weft's.
"""

from collections.abc import Mapping

# Of the hardware: names of the Linux drivers efa and mlx5.
CARD = {
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
    "np_ecn_marked_roce_packets": ("rx_marked",),
}
DRIVER = {
    "local_ack_timeout_err": ("probe_timeouts",),
    "packet_seq_err": ("loss_reports_received",),
    "rnr_nak_retry_err": ("rnr_naks_received",),
    "np_cnp_sent": ("CNP",),
    "rp_cnp_handled": ("cnps_received",),
    "path_changes": ("path_changes",),      # without an equivalent
}
# Of a port (IBTA 1.7, 16.1.3.5); those of data are in units of four bytes of payload.
PORT = {
    "port_xmit_packets": ("tx_packets", "tx_raw_frames"),
    "port_rcv_packets": ("rx_frames",),
    "port_xmit_data": ("tx_bytes",),
    "port_rcv_data": ("rx_bytes",),
    "port_xmit_wait": ("tx_stall_cycles",),
    "port_rcv_errors": ("drop_bad_frame", "drop_truncated", "drop_bad_icrc", "drop_frame_too_long",
                        "drop_buffer_full"),
    "link_downed": (),
}
WORD_BYTES = {"port_xmit_data": 4, "port_rcv_data": 4}


def driver_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return those counts of a driver that :data:`DRIVER` names, by the name of the source."""
    return {source: counts.get(source, 0) for sources in DRIVER.values() for source in sources}


def linux_counters(names: Mapping[str, tuple[str, ...]], counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters ``names``, one of the tables above. A source that ``counters`` lacks is 0."""
    return {name: sum(counters.get(source, 0) for source in sources) // WORD_BYTES.get(name, 1)
            for name, sources in names.items()}
