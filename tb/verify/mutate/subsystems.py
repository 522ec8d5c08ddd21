"""Assignment of tests to the files of the gateware.

A file is mutated in the smallest design that has tests for it: a block with a separate bench is mutated there, other
blocks in the bench of their subsystem. Files that only wire subsystems together (:data:`WIRES`) contain almost no
cells; the tests of whole cards and of the board's netlist cover them.
"""

from dataclasses import dataclass
from os.path import normpath

SIM = "icarus"     # each mutant is built separately: one second with Icarus, half a minute with Verilator
COUNT, SEED = 173, 1     # faults, about 210 with the minimum for the smallest subsystems; seed of the drawing
WIRES = ("hdl/card.py", "hdl/ring/rings.py", "hdl/table/tables.py", "hdl/board/u50.py")


@dataclass(frozen=True)
class Target:
    """Design in which faults are made."""

    subsystem: str           # subsystem
    name: str
    files: tuple        # files whose modules get the faults
    tests: tuple        # pytest's names, fast ones first; all tests simulate the same design


def _target(subsystem, name, files, *tests):
    """Return a :class:`Target`; files, without suffix, and tests are relative to the folders of the subsystem."""
    return Target(subsystem, name, tuple(normpath(f"hdl/{subsystem}/{file}.py") for file in files.split()),
                  tuple(normpath(f"tb/test/hdl/{subsystem}/{test}") for test in tests))


TARGETS = (
    _target("adamap", "adamap", "adamap prefetch/ahead prefetch/fill window/control window/cum prefetch/list_state "
            "prefetch/prefetch second_level prefetch/evict",
            f"test_second_incarnation.py::test_incarnation_leaves_no_state[{SIM}]",
            f"test_lists.py::test_lists_of_known_shape_are_matched[{SIM}]",
            f"test_broken.py::test_broken_list_stops_its_qp[{SIM}]",
            f"test_ends.py::test_lists_end_at_the_node_of_the_driver[{SIM}]",
            f"test_recovery.py::test_recovery_agrees_with_the_model[{SIM}]"),
    _target("adamap", "pointed", "cache/cached", f"test_extent_lookup.py::test_every_line_is_found[{SIM}]"),
    _target("adamap", "fetches", "prefetch/fetches", f"test_fetching.py::test_nodes_of_many_lists_are_read[{SIM}]"),
    _target("adamap", "matcher", "match/decisions match/mark_lane match/match_entry match/matcher match/retire",
            f"test_matcher_limits.py::test_matcher_at_its_limits[{SIM}]",
            f"test_software_matched.py::test_headers_without_a_match_queue_entry[{SIM}]",
            f"test_matcher.py::test_headers_and_nodes_agree_with_the_model[{SIM}]"),
    _target("adamap", "wait_queue", "match/wait_queue ../part/select",
            f"test_wait_queue.py::test_headers_leave_in_order[{SIM}]"),
    _target("adamap", "hole", "match/hole", f"test_hole.py::test_holes_are_distinguished_from_other_psns[{SIM}]"),
    _target("adamap", "head_cache", "cache/chains cache/head_cache ../part/select",
            f"test_head_cache.py::test_ports_agree_with_the_model[{SIM}-4]"),
    _target("adamap", "builder", "builder/builder builder/open_node builder/open_node_cam",
            f"test_builder.py::test_nodes_hold_every_hole_in_the_best_encoding[{SIM}]"),
    _target("adamap", "window", "window/slide window/window ../part/select",
            f"test_window.py::test_verdicts_and_holes_agree_with_the_model[{SIM}-64]"),
    _target("adamap", "work_list", "prefetch/work_list",
            f"test_work_list.py::test_no_entered_qp_is_lost[{SIM}-2]"),
    _target("adamap", "node_check", "prefetch/fetches", f"test_node_check.py::test_only_valid_nodes_pass[{SIM}]"),
    _target("pcie", "endpoint", "endpoint usplus msix bus_master_gate tag_limiter",
            f"test_usplus.py::test_traffic_with_a_late_and_reordering_host[{SIM}-256,1024,1]",
            f"test_endpoint.py::test_held_subsystem_becomes_idle[{SIM}]",
            f"test_host_control.py::test_the_host_is_obeyed[{SIM}]",
            f"test_usplus.py::test_host_requests_interrupts_and_errors[{SIM}]"),
    _target("pcie", "read_tracker", "read_tracker", f"test_read_tracker.py::test_every_tag_is_tracked[{SIM}]"),
    _target("pcie", "dma_read", "dma_read bulk_read line_read read_slots gather scatter slot_memory rotate "
            "completion_credit",
            f"test_dma_read.py::test_reads_return_the_requested_bytes[{SIM}]"),
    _target("pcie", "dma_write", "dma_write write_align piece_beats",
            f"test_dma_write.py::test_bytes_are_written_to_their_addresses[{SIM}]"),
    _target("pcie", "splitter", "splitter", f"test_splitter.py::test_requests_are_cut_at_aligned_boundaries[{SIM}]"),
    _target("pcie", "rq", "rq write_store outstanding_writes",
            f"test_rq.py::test_reads_and_writes_share_the_link[{SIM}]"),
    _target("pcie", "cq", "cq", f"test_cq.py::test_host_requests_are_served_or_rejected[{SIM}]"),
    _target("pcie", "rc_straddle", "rc_straddle",
            f"test_rc_straddle.py::test_straddled_completions_are_separated[{SIM}]"),
    _target("pcie", "rq_straddle", "rq_straddle", f"test_rq.py::test_reads_and_writes_share_beats[{SIM}]"),
    _target("pcie", "rc", "rc", f"test_rc.py::test_completions_are_decoded[{SIM}]"),
    _target("ring", "reader", "doorbell_latch output_register reorder_buffer push_check reader size",
            f"test_reader.py::test_descriptors_are_delivered_in_order[{SIM}]"),
    _target("ring", "writer", "writer", f"test_writer.py::test_entries_reach_the_host[{SIM}]"),
    _target("ring", "status", "status", f"test_status.py::test_status_block_follows_the_rings[{SIM}]"),
    _target("table", "translate", "translate", f"test_translate.py::test_accesses_are_checked_and_translated[{SIM}]"),
    _target("table", "entry", "entry", f"test_entry.py::test_readers_see_written_entries[{SIM}]"),
    _target("command", "command", "check page_writer processor qp_commands qp_port statistics",
            f"test_processor.py::test_commands_are_executed_and_answered[{SIM}]",
            f"test_memory.py::test_memory_is_registered[{SIM}]", f"test_flush.py::test_pacer_is_flushed[{SIM}]"),
    _target("transmit", "transmit", "check frame header inline merge outcome payload raw_pad icrc_append transmit",
            f"test_transmit.py::test_transmit_subsystem[{SIM}]", f"test_paced.py::test_paced_descriptors[{SIM}]"),
    _target("transmit", "segment", "segment", f"test_segment.py::test_segmenter_cuts_like_brute_force[{SIM}]"),
    _target("transmit", "buffer", "send_buffer", f"test_buffer.py::test_buffer_passes_complete_frames[{SIM}]"),
    _target("pacing", "wheel", "wheel", f"test_wheel.py::test_qps_leave_the_wheel_in_time[{SIM}]"),
    _target("pacing", "pacer", "engine pacer pool settings",
            f"test_pacer.py::test_pacer_sends_in_order_and_in_time[{SIM}]"),
    _target("pacing", "scan", "scan", f"test_scan.py::test_scan_finds_what_the_wheel_does_not_reach[{SIM}]"),
    _target("receive", "parse", "align early_translate parse revocable_buffer",
            f"test_parse.py::test_every_frame_is_classified_as_in_the_model[{SIM}]"),
    _target("receive", "receive", "check in_flight window_check place receive",
            f"test_receive.py::test_packets_are_checked_and_placed_in_order[{SIM}]"),
    _target("receive", "drop_reports", "drop_reports", f"test_drop_reports.py::test_drops_are_reported_once[{SIM}]"),
    _target("receive", "marks", "marks", f"test_marks.py::test_marks_are_counted_and_reported[{SIM}]"),
    _target("mac", "mac", "edge", f"test_mac.py::test_frames_pass_the_edge[{SIM}]"),
    _target("mac", "crossing", "frame_crossing rx_crossing ../transmit/send_crossing",
            f"test_crossing.py::test_crossing[{SIM}]"),
    _target("mac", "pause", "pause pause_gate", f"test_pause.py::test_pauses_are_requested_and_obeyed[{SIM}]"),
    _target("mac", "pause_crossing", "pause_crossing", f"test_pause_crossing.py::test_pause_crossing[{SIM}]"),
    _target("mac", "reset_release", "reset_release", "test_reset_release.py::test_reset_release"),
    _target("supervisor", "supervisor", "../supervisor",
            f"../test_supervisor.py::test_reset_waits_for_started_work[{SIM}]"),
    _target("csr", "csr", "../csr", f"../test_csr.py::test_registers_follow_the_contract[{SIM}]"),
    _target("counters", "counters", "../part/counters", f"../part/test_counters.py::test_no_event_is_lost[{SIM}]"),
    _target("icrc", "icrc", "../part/icrc", f"../part/test_icrc.py::test_icrc_equals_contract[True-{SIM}]"),
    _target("report", "report", "../report", f"../test_report.py::test_reports_follow_their_data[{SIM}]"),
    _target("simple_nic", "nic_tx", "../simple_nic", f"../test_simple_nic.py::test_raw_frames_are_sent[{SIM}]"),
    _target("simple_nic", "nic_rx", "../simple_nic", f"../test_simple_nic.py::test_raw_frames_arrive[{SIM}]"),
    _target("stream", "stream", "../part/stream ../part/queue ../part/stages ../part/arbiter",
            f"../part/test_stream_parts.py::test_stream_parts[{SIM}]"),
    _target("board", "mac_side", "mac_side", f"test_mac_side.py::test_mac_side[{SIM}]"),
    _target("board", "registers", "bar_decoder registers", "test_registers.py::test_registers"),
    _target("board", "device_control", "device_control", "test_registers.py::test_device_control"),
)
SUBSYSTEMS = tuple(dict.fromkeys(target.subsystem for target in TARGETS))
