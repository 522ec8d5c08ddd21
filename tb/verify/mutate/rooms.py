"""Assignment of tests to the files of the gateware.

A file is mutated in the smallest design that has tests for it: a block with a separate bench is mutated there, other
blocks in the bench of their subsystem. Files that only wire subsystems together (:data:`WIRES`) contain almost no
cells; the tests of whole cards and of the board's netlist cover them.
"""

from dataclasses import dataclass

SIM = "icarus"     # each mutant is built separately: one second with Icarus, half a minute with Verilator
COUNT, SEED = 173, 1     # faults, about 210 with the minimum for the smallest subsystems; seed of the drawing
WIRES = ("hdl/card.py", "hdl/ring/rings.py", "hdl/table/tables.py", "hdl/board/u50.py")


@dataclass(frozen=True)
class Target:
    """Design in which faults are made."""

    room: str           # subsystem
    name: str
    files: tuple        # files whose modules get the faults
    tests: tuple        # pytest's names, fast ones first; all tests simulate the same design


def _in(folder, *names):
    return tuple(f"hdl/{folder}/{name}.py" for name in names)


def _tests(folder, *names):
    return tuple(f"tb/test/hdl/{folder}/{name}" for name in names)


TARGETS = (
    Target("adamap", "adamap",
           _in("adamap", "adamap", "prefetch/ahead", "prefetch/fill", "window/control", "window/cum",
               "prefetch/list_state", "prefetch/prefetch", "second_level", "prefetch/evict"),
           _tests("adamap", f"test_second_life.py::test_a_life_leaves_nothing_behind[{SIM}]",
                  f"test_lists.py::test_lists_of_a_known_shape_are_matched[{SIM}]",
                  f"test_broken.py::test_broken_list_stops_its_qp[{SIM}]",
                  f"test_ends.py::test_lists_end_where_the_driver_says[{SIM}]",
                  f"test_recovery.py::test_recovery_agrees_with_the_model[{SIM}]")),
    Target("adamap", "pointed", _in("adamap", "cache/cached"),
           _tests("adamap", f"test_extent_lookup.py::test_every_line_is_found[{SIM}]")),
    Target("adamap", "fetches", _in("adamap", "prefetch/fetches"),
           _tests("adamap", f"test_fetching.py::test_nodes_of_many_lists_are_read[{SIM}]")),
    Target("adamap", "matcher",
           (*_in("adamap", "match/decisions", "match/mark_lane", "match/match_entry", "match/matcher", "match/retire",
                 "match/wait_queue"), "hdl/part/select.py"),
           _tests("adamap", f"test_matcher_limits.py::test_matcher_at_its_limits[{SIM}]",
                  f"test_unmatched.py::test_headers_without_a_place[{SIM}]",
                  f"test_matcher.py::test_headers_and_nodes_agree_with_the_model[{SIM}]")),
    Target("adamap", "hole", _in("adamap", "match/hole"),
           _tests("adamap", f"test_hole.py::test_holes_are_told_from_other_psns[{SIM}]")),
    Target("adamap", "head_cache", (*_in("adamap", "cache/chains", "cache/head_cache"), "hdl/part/select.py"),
           _tests("adamap", f"test_head_cache.py::test_ports_agree_with_the_model[{SIM}-4]")),
    Target("adamap", "builder", _in("adamap", "builder/builder", "builder/open_node", "builder/open_node_cam"),
           _tests("adamap", f"test_builder.py::test_nodes_hold_every_hole_in_the_best_encoding[{SIM}]")),
    Target("adamap", "window", (*_in("adamap", "window/slide", "window/window"), "hdl/part/select.py"),
           _tests("adamap", f"test_window.py::test_verdicts_and_holes_agree_with_the_model[{SIM}-64]")),
    Target("adamap", "work_list", _in("adamap", "prefetch/work_list"),
           _tests("adamap", f"test_work_list.py::test_no_entered_qp_is_forgotten[{SIM}-2]")),
    Target("adamap", "node_check", _in("adamap", "prefetch/fetches"),
           _tests("adamap", f"test_node_check.py::test_only_sound_nodes_pass[{SIM}]")),
    Target("pcie", "endpoint", _in("pcie", "endpoint", "usplus", "msix", "bus_master_gate", "tag_limiter"),
           _tests("pcie", f"test_usplus.py::test_traffic_with_a_late_and_reordering_host[{SIM}-256,1024,1]",
                  f"test_endpoint.py::test_held_room_comes_to_rest[{SIM}]",
                  f"test_host_control.py::test_the_host_is_obeyed[{SIM}]",
                  f"test_usplus.py::test_host_requests_interrupts_and_errors[{SIM}]")),
    Target("pcie", "read_tracker", _in("pcie", "read_tracker"),
           _tests("pcie", f"test_read_tracker.py::test_every_tag_is_watched[{SIM}]")),
    Target("pcie", "dma_read",
           _in("pcie", "dma_read", "bulk_read", "line_read", "read_slots", "gather", "scatter", "slot_memory",
               "rotate", "completion_credit"),
           _tests("pcie", f"test_dma_read.py::test_reads_return_the_bytes_asked_for[{SIM}]")),
    Target("pcie", "dma_write", _in("pcie", "dma_write", "write_align", "piece_beats"),
           _tests("pcie", f"test_dma_write.py::test_bytes_land_where_they_belong[{SIM}]")),
    Target("pcie", "splitter", _in("pcie", "splitter"),
           _tests("pcie", f"test_splitter.py::test_requests_are_cut_at_aligned_boundaries[{SIM}]")),
    Target("pcie", "rq", _in("pcie", "rq", "write_store", "outstanding_writes"),
           _tests("pcie", f"test_rq.py::test_reads_and_writes_share_the_link[{SIM}]")),
    Target("pcie", "cq", _in("pcie", "cq"),
           _tests("pcie", f"test_cq.py::test_host_requests_are_served_or_refused[{SIM}]")),
    Target("pcie", "rc_straddle", _in("pcie", "rc_straddle"),
           _tests("pcie", f"test_rc_straddle.py::test_straddled_completions_are_taken_apart[{SIM}]")),
    Target("pcie", "rq_straddle", _in("pcie", "rq_straddle"),
           _tests("pcie", f"test_rq.py::test_reads_and_writes_share_beats[{SIM}]")),
    Target("pcie", "rc", _in("pcie", "rc"),
           _tests("pcie", f"test_rc.py::test_completions_are_decoded[{SIM}]")),
    Target("ring", "reader", _in("ring", "doorbell_latch", "output_register", "reorder_buffer", "push_check", "reader",
                                 "size"),
           _tests("ring", f"test_reader.py::test_descriptors_are_delivered_in_order[{SIM}]")),
    Target("ring", "writer", _in("ring", "writer"),
           _tests("ring", f"test_writer.py::test_entries_reach_the_host[{SIM}]")),
    Target("ring", "status", _in("ring", "status"),
           _tests("ring", f"test_status.py::test_status_block_follows_the_rings[{SIM}]")),
    Target("table", "translate", _in("table", "translate"),
           _tests("table", f"test_translate.py::test_accesses_are_checked_and_translated[{SIM}]")),
    Target("table", "entry", _in("table", "entry"),
           _tests("table", f"test_entry.py::test_readers_see_what_was_written[{SIM}]")),
    Target("command", "command",
           _in("command", "check", "page_writer", "processor", "qp_commands", "qp_port", "statistics"),
           _tests("command", f"test_processor.py::test_commands_are_executed_and_answered[{SIM}]",
                  f"test_memory.py::test_memory_is_registered[{SIM}]")),
    Target("transmit", "transmit",
           _in("transmit", "check", "frame", "header", "inline", "merge", "outcome", "payload", "raw_pad",
               "icrc_append",
               "transmit"),
           _tests("transmit", f"test_transmit.py::test_transmit_room[{SIM}]")),
    Target("transmit", "segment", _in("transmit", "segment"),
           _tests("transmit", f"test_segment.py::test_segmenter_cuts_like_brute_force[{SIM}]")),
    Target("transmit", "buffer", _in("transmit", "send_buffer"),
           _tests("transmit", f"test_buffer.py::test_buffer_passes_whole_frames[{SIM}]")),
    Target("receive", "parse", _in("receive", "align", "early_translate", "parse", "revocable_buffer"),
           _tests("receive", f"test_parse.py::test_every_frame_is_classified_as_the_model_does[{SIM}]")),
    Target("receive", "receive", _in("receive", "check", "in_flight", "window_check", "place", "receive"),
           _tests("receive", f"test_receive.py::test_packets_are_checked_judged_and_placed_in_order[{SIM}]")),
    Target("receive", "drop_reports", _in("receive", "drop_reports"),
           _tests("receive", f"test_drop_reports.py::test_refusals_are_told_of_once[{SIM}]")),
    Target("mac", "mac", ("hdl/mac/edge.py",), (f"tb/test/hdl/mac/test_mac.py::test_frames_pass_the_edge[{SIM}]",)),
    Target("mac", "crossing", (*_in("mac", "frame_crossing", "rx_crossing"), "hdl/transmit/send_crossing.py"),
           _tests("mac", f"test_crossing.py::test_crossing[{SIM}]")),
    Target("mac", "pause", _in("mac", "pause", "pause_gate"),
           _tests("mac", f"test_pause.py::test_pauses_are_asked_for_and_obeyed[{SIM}]")),
    Target("mac", "pause_crossing", _in("mac", "pause_crossing"),
           _tests("mac", f"test_pause_crossing.py::test_pause_crossing[{SIM}]")),
    Target("mac", "reset_release", _in("mac", "reset_release"),
           _tests("mac", "test_reset_release.py::test_reset_release")),
    Target("supervisor", "supervisor", ("hdl/supervisor.py",),
           (f"tb/test/hdl/test_supervisor.py::test_reset_waits_for_what_was_begun[{SIM}]",)),
    Target("csr", "csr", ("hdl/csr.py",), (f"tb/test/hdl/test_csr.py::test_registers_follow_the_contract[{SIM}]",)),
    Target("counters", "counters", ("hdl/part/counters.py",),
           (f"tb/test/hdl/part/test_counters.py::test_no_event_is_lost[{SIM}]",)),
    Target("icrc", "icrc", ("hdl/part/icrc.py",),
           (f"tb/test/hdl/part/test_icrc.py::test_icrc_equals_contract[True-{SIM}]",)),
    Target("report", "report", ("hdl/report.py",),
           (f"tb/test/hdl/test_report.py::test_reports_follow_their_data[{SIM}]",)),
    Target("simple_nic", "nic_tx", ("hdl/simple_nic.py",),
           (f"tb/test/hdl/test_simple_nic.py::test_raw_frames_leave[{SIM}]",)),
    Target("simple_nic", "nic_rx", ("hdl/simple_nic.py",),
           (f"tb/test/hdl/test_simple_nic.py::test_raw_frames_arrive[{SIM}]",)),
    Target("stream", "stream",
           ("hdl/part/stream.py", "hdl/part/queue.py", "hdl/part/stages.py", "hdl/part/arbiter.py"),
           (f"tb/test/hdl/part/test_stream_parts.py::test_stream_parts[{SIM}]",)),
    Target("board", "mac_side", _in("board", "mac_side"),
           _tests("board", f"test_mac_side.py::test_mac_side[{SIM}]")),
    Target("board", "registers", _in("board", "bar_decoder", "registers"),
           _tests("board", "test_registers.py::test_registers")),
    Target("board", "device_control", _in("board", "device_control"),
           _tests("board", "test_registers.py::test_device_control")),
)
ROOMS = tuple(dict.fromkeys(target.room for target in TARGETS))
