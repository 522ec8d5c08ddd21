"""Tiers of the tests: simulators of RTL, other programs, and those that only ``make test-all`` runs.

``make check`` runs tests in none of the lists, ``make test`` all but the long ones, ``make test-all`` all. An entry is
the beginning of a test's name below ``tb/test``.
"""

# Tests that simulate, elaborate or prove RTL. The simulator refuses to start for other tests in `make check`.
RTL = """
app/job
app/machine/test_rtl.py
app/perf/test_perf.py::test_model_and_rtl_agree
app/serve/test_link.py::test_the_third_acknowledgement_is_dropped_exactly_once[rtl]
app/serve/test_page.py
app/serve/test_simulated_time.py::test_program_measures_simulated_time[rtl]
app/sweep/test_sweep.py::test_two_cards_are_points_on_rtl_and_model
app/test_examples.py::test_an_example_runs_on_the_rtl
cards
driver/soft/test_two_cards.py::test_every_operation_of_rocev2[rtl]
driver/soft/test_two_cards.py::test_phase_two_of_the_document[rtl]
hdl
model/card
sim/flow
sim/link/test_mac.py
sim/pair
sim/synth
sim/wave
verify/bench
verify/calibrate
verify/conformance/test_suite.py::test_some_cases_pass_on_every_back_end
verify/document/test_port_waves.py::test_waves_are_current
verify/fuzz
verify/interop
verify/churn
verify/mutate
verify/proof
verify/soak
""".split()

# Tests that start programs: the daemon with RDMA programs, guests, a browser, builds of the library and of the wheel.
PROGRAMS = """
app/machine
app/perf
app/report/test_report.py::test_a_browser_draws_every_figure
app/serve
cli/test_soft_server.py::test_the_kernel_reaches_a_host_that_is_set_up_as_on_the_page
test_package.py
verify/conformance
verify/document/test_commands.py::test_commands_of_a_page_run
verify/document/test_documents.py::test_commands_of_the_tutorial_run
verify/document/test_small_commands.py
verify/linux
""".split()

# Each repeats, for other parameters, seeds or the slower simulator, a shorter test outside this list, or is costly and
# tests what several shorter ones cover.
LONG = """
app/job/test_captures.py::test_captured_payload_is_the_file
app/job/test_captures.py::test_captures_of_a_clean_run_are_valid
app/job/test_entry.py::test_concurrent_runs_do_not_mix
app/job/test_entry.py::test_unusual_names_and_environments
app/job/test_main_job.py::test_bad_link_in_both_directions
app/job/test_main_job.py::test_missing_acknowledgements_fail_the_run
app/job/test_main_job.py::test_small_files[1023]
app/job/test_main_job.py::test_small_files[1024]
app/job/test_main_job.py::test_small_files[1025]
app/job/test_main_job.py::test_small_files[1]
app/job/test_main_job.py::test_very_bad_link
app/job/test_network_job.py::test_three_senders_and_a_receiver_on_the_rtl
app/machine/test_linux.py
app/machine/test_rtl.py::test_machines_on_the_rtl
app/perf/test_perf.py::test_model_and_rtl_agree
app/serve/test_absent_pages.py::test_memory_of_a_process_that_ended_is_silent[child-read-simulated]
app/serve/test_absent_pages.py::test_memory_of_a_process_that_ended_is_silent[child-read-wall]
app/serve/test_absent_pages.py::test_memory_of_a_process_that_ended_is_silent[child-write from-simulated]
app/serve/test_absent_pages.py::test_memory_of_a_process_that_ended_is_silent[child-write from-wall]
app/serve/test_containers.py::test_a_workflow_for_another_project_serves_hosts_and_runs_programs[faults.yml
app/serve/test_link.py::test_rules_hit_the_packets_of_one_qp_only
app/serve/test_link.py::test_the_third_acknowledgement_is_dropped_exactly_once[rtl]
app/serve/test_page.py::test_every_command_of_the_page_runs
app/serve/test_simulated_time.py::test_measurements_depend_on_the_seed_only[ib_send_bw
app/serve/test_simulated_time.py::test_program_measures_simulated_time[rtl]
app/test_examples.py::test_an_example_runs_on_the_rtl[key_value.py]
cards/test_connection.py::test_ping_pong_between_addresses
cards/test_crossing.py::test_case[acknowledgements_lost]
cards/test_crossing.py::test_case[completions_split]
cards/test_crossing.py::test_case[empty_file]
cards/test_crossing.py::test_case[loss_reports_lost]
cards/test_crossing.py::test_case[odd_sizes]
cards/test_crossing.py::test_case[psn_passes_half]
cards/test_crossing.py::test_case[psn_wraps]
cards/test_crossing.py::test_case[rings_wrap]
cards/test_crossing.py::test_case[rough_in_both_directions]
cards/test_crossing.py::test_short_transfer_with_a_loss[icarus]
cards/test_damage.py::test_memory_damage_affects_its_owners_only[commands]
cards/test_damage.py::test_memory_damage_affects_its_owners_only[descriptors]
cards/test_damage.py::test_memory_damage_affects_its_owners_only[inline_descriptors]
cards/test_damage.py::test_memory_damage_affects_its_owners_only[nodes]
cards/test_hostile.py::test_bad_descriptors_doorbells_commands_and_nodes_are_rejected
cards/test_hostile.py::test_bad_frames_are_dropped_during_transfers
cards/test_loss.py::test_each_loss_is_recovered_once_without_a_timer[burst_of_512]
cards/test_loss.py::test_each_loss_is_recovered_once_without_a_timer[bursts_of_64]
cards/test_loss.py::test_each_loss_is_recovered_once_without_a_timer[bursts_of_8]
cards/test_loss.py::test_each_loss_is_recovered_once_without_a_timer[comb]
cards/test_loss.py::test_each_loss_is_recovered_once_without_a_timer[holes_reported_at_once]
cards/test_loss.py::test_each_loss_is_recovered_once_without_a_timer[lost_repeatedly]
cards/test_loss.py::test_each_loss_is_recovered_once_without_a_timer[outages]
cards/test_loss.py::test_too_few_blocks_make_spans
cards/test_operations.py::test_random_operations
cards/test_outage.py::test_removed_card_ends_pending_requests[bus_master_cleared]
cards/test_outage.py::test_removed_card_ends_pending_requests[bus_master_cleared_briefly]
cards/test_outage.py::test_removed_card_ends_pending_requests[hot_reset]
cards/test_outage.py::test_removed_card_ends_pending_requests[surprise_removal_of_a_sender]
cards/test_pacing.py::test_paced_qps_exchange_data_with_losses
cards/test_pause.py::test_flow_control[forged_pauses_do_not_stop_the_card-one clock]
cards/test_pause.py::test_flow_control[forged_pauses_do_not_stop_the_card-two clocks]
cards/test_pause.py::test_flow_control[frames_are_dropped_without_pauses-one clock]
cards/test_pause.py::test_flow_control[frames_are_dropped_without_pauses-two clocks]
cards/test_pause.py::test_flow_control[invalid_pauses_are_ignored-one clock]
cards/test_pause.py::test_flow_control[invalid_pauses_are_ignored-two clocks]
cards/test_pause.py::test_flow_control[nothing_is_dropped-one clock]
cards/test_pause.py::test_flow_control[nothing_is_dropped-two clocks]
cards/test_pause.py::test_flow_control[nothing_is_dropped_in_both_directions-two clocks]
cards/test_pause.py::test_flow_control[peer_that_ignores_pauses_does_no_harm-one clock]
cards/test_pause.py::test_flow_control[peer_that_ignores_pauses_does_no_harm-two clocks]
cards/test_reset.py::test_reset_in_flight[function_reset]
cards/test_reset.py::test_reset_in_flight[nodes_in_flight]
cards/test_two_clocks.py::test_two_clocks
cli/test_long_commands.py::test_small_form
cli/test_soak.py::test_seeds_outside_the_tests_come_first
driver/channel/test_states.py::test_no_state_is_invalid[3-3]
driver/engine/test_path_search.py::test_traffic_is_back_within_two_probe_timeouts_after_a_cut[timed-answers]
driver/engine/test_path_search.py::test_traffic_is_back_within_two_probe_timeouts_after_a_cut[timed-data]
driver/knitting/test_pool.py::test_node_churn_leaks_nothing_and_mixes_nothing
driver/operation/test_operations.py::test_random_operations
driver/send/test_loss_models.py::test_each_loss_is_recovered_once_without_a_timer[burst 512]
driver/send/test_loss_models.py::test_each_loss_is_recovered_once_without_a_timer[burst 64]
driver/send/test_loss_models.py::test_each_loss_is_recovered_once_without_a_timer[comb 384]
driver/send/test_loss_models.py::test_each_loss_is_recovered_once_without_a_timer[comb 7]
driver/send/test_loss_models.py::test_each_loss_is_recovered_once_without_a_timer[one burst]
driver/send/test_loss_models.py::test_each_loss_is_recovered_once_without_a_timer[outage
driver/soft/test_two_cards.py::test_phase_two_of_the_document[rtl]
hdl/adamap/test_broken.py::test_broken_list_stops_its_qp[verilator]
hdl/adamap/test_builder.py::test_builder_with_a_subset_of_encodings
hdl/adamap/test_builder.py::test_nodes_hold_every_hole_in_the_best_encoding[icarus]
hdl/adamap/test_ends.py::test_lists_end_at_the_node_of_the_driver[icarus]
hdl/adamap/test_fetching.py::test_nodes_of_many_lists_are_read[icarus]
hdl/adamap/test_head_cache.py::test_ports_agree_with_the_model[icarus-4]
hdl/adamap/test_head_cache.py::test_ports_agree_with_the_model[icarus-8]
hdl/adamap/test_hole.py::test_holes_are_distinguished_from_other_psns[icarus]
hdl/adamap/test_lists.py::test_lists_of_known_shape_are_matched[icarus]
hdl/adamap/test_matcher.py
hdl/adamap/test_matcher_limits.py::test_matcher_at_its_limits[icarus]
hdl/adamap/test_recovery.py::test_recovery_agrees_with_the_model[icarus]
hdl/adamap/test_recovery.py::test_recovery_with_slack_and_a_tiny_cache
hdl/adamap/test_software_matched.py::test_headers_without_a_match_queue_entry[icarus]
hdl/adamap/test_window.py::test_verdicts_and_holes_agree_with_the_model[icarus-64]
hdl/adamap/test_window.py::test_verdicts_and_holes_agree_with_the_model[verilator-512]
hdl/adamap/test_work_list.py::test_no_entered_qp_is_lost[icarus-64]
hdl/board/test_crossings.py::test_all_crossings_are_known[card]
hdl/board/test_crossings.py::test_all_known_crossings_exist[card]
hdl/board/test_crossings.py::test_no_logic_crosses[card]
hdl/board/test_crossings.py::test_registers_of_synchronisers_have_their_attribute[card]
hdl/command/test_memory.py::test_memory_is_registered[verilator]
hdl/command/test_processor.py::test_commands_are_executed_and_answered[icarus]
hdl/mac/test_pause.py::test_pauses_are_requested_and_obeyed[icarus]
hdl/mac/test_pause_crossing.py::test_pause_crossing[icarus]
hdl/part/test_counters.py::test_no_event_is_lost[icarus]
hdl/part/test_stream_parts.py::test_stream_parts[icarus]
hdl/pcie/test_dma_read.py::test_reads_return_the_requested_bytes[icarus]
hdl/pcie/test_dma_read.py::test_reads_with_straddle
hdl/pcie/test_dma_write.py::test_bytes_are_written_to_their_addresses[icarus]
hdl/pcie/test_endpoint.py::test_held_subsystem_becomes_idle[icarus]
hdl/pcie/test_faults.py::test_misbehaving_host_breaks_nothing[plain]
hdl/pcie/test_faults.py::test_misbehaving_host_breaks_nothing[straddle]
hdl/pcie/test_host_control.py::test_the_host_is_obeyed[icarus]
hdl/pcie/test_host_control.py::test_the_host_is_obeyed_with_straddle
hdl/pcie/test_rc_straddle.py::test_straddled_completions_are_separated[icarus]
hdl/pcie/test_read_tracker.py::test_every_tag_is_tracked[icarus]
hdl/pcie/test_rq.py::test_reads_and_writes_share_beats[icarus]
hdl/pcie/test_rq.py::test_reads_and_writes_share_the_link[icarus]
hdl/pcie/test_splitter.py::test_requests_are_cut_at_aligned_boundaries[icarus]
hdl/pcie/test_usplus.py::test_host_requests_interrupts_and_errors[icarus]
hdl/pcie/test_usplus.py::test_interrupts_and_errors_with_straddle
hdl/pcie/test_usplus.py::test_rates_at_the_hard_block[True
hdl/pcie/test_usplus.py::test_traffic_with_a_late_and_reordering_host[icarus-256,1024,1]
hdl/pacing/test_pacer.py::test_pacer_sends_in_order_and_in_time[icarus]
hdl/pcie/test_usplus.py::test_traffic_with_a_late_and_reordering_host[verilator-128,128,1]
hdl/pcie/test_usplus.py::test_traffic_with_a_late_and_reordering_host[verilator-512,4096,0]
hdl/pcie/test_usplus.py::test_traffic_with_straddle
hdl/receive/test_parse.py::test_every_frame_is_classified_as_in_the_model[icarus]
hdl/receive/test_receive.py::test_packets_are_checked_and_placed_in_order[icarus]
hdl/ring/test_reader.py::test_descriptors_are_delivered_in_order[icarus]
hdl/ring/test_writer.py::test_entries_reach_the_host[icarus]
hdl/table/test_translate.py::test_accesses_are_checked_and_translated[icarus]
hdl/test_simple_nic.py::test_raw_frames_arrive[icarus]
hdl/transmit/test_paced.py::test_paced_descriptors[icarus]
hdl/transmit/test_transmit.py::test_transmit_subsystem[icarus]
hdl/transmit/test_transmit.py::test_card_without_a_pacer
sim/flow/test_places.py::test_every_path_may_have_spaces[verilator]
sim/flow/test_simulate.py::test_waves_are_recorded[verilator]
sim/synth/test_flattened.py::test_logic_across_a_boundary_is_mapped_together_without_it
sim/synth/test_same_netlist.py::test_the_netlist_of_a_card_is_written_and_compared
sim/synth/test_synth.py::test_blocks_are_placed_until_an_attempt_is_fast_enough
sim/synth/test_synth.py::test_card_is_mapped_by_block_and_cached
sim/synth/test_synth.py::test_deep_memory_with_the_attribute_is_ultraram
sim/synth/test_synth.py::test_mapper_delays_equal_those_of_the_estimate
sim/synth/test_synth.py::test_unnamed_port_is_named_by_position
sim/wave/test_wave.py::test_every_trace_is_in_the_waves_and_every_state_has_a_name[verilator]
test_package.py::test_formal_runs_from_the_wheel
test_package.py::test_interop_runs_from_the_wheel
test_package.py::test_sweep_of_a_plan_and_report_run_from_the_wheel
test_package.py::test_wheel_imports_every_module
verify/bench/test_adamap_figures.py::test_subsystem_memory_is_within_its_limit
verify/bench/test_hostile.py
verify/bench/test_line_rate.py::test_acknowledgements_between_small_writes_block_nothing
verify/bench/test_line_rate.py::test_other_settings_run_at_line_rate
verify/bench/test_small_forms.py::test_short_benchmarks_run_in_full_size
verify/bench/test_small_forms.py::test_small_form
verify/calibrate/test_calibrate.py::test_headers_wait_for_nodes_as_long_as_in_the_gateware[fit-more-22]
verify/calibrate/test_calibrate.py::test_headers_wait_for_nodes_as_long_as_in_the_gateware[fit-more-24]
verify/calibrate/test_calibrate.py::test_slots_of_payload_and_lines_of_a_read_take_the_gatewares_time[fit-third-13]
verify/churn/test_churn.py::test_card_without_generation_checks_is_detected
verify/churn/test_churn.py::test_node_churn_in_the_rtl
verify/conformance/test_suite.py::test_every_case_passes_on_the_timing_model
verify/conformance/test_suite.py::test_some_cases_pass_on_every_back_end
verify/document/test_commands.py::test_commands_of_a_page_run[docs/faults.md]
verify/document/test_commands.py::test_commands_of_a_page_run[docs/serve.md]
verify/document/test_documents.py::test_generated_parts_are_current
verify/document/test_documents.py::test_points_of_the_picture_are_current[adamap-0.01]
verify/document/test_small_commands.py
verify/fuzz/test_fuzz.py::test_random_frames_do_not_affect_rtl_cards
verify/interop/test_interop.py
verify/linux/test_hostile.py::test_hostile_machines_harm_no_other
verify/linux/test_hostile.py::test_writes_to_memory_that_may_only_be_read_are_noticed
verify/mutate/test_mutate.py::test_two_clocks_are_distinguished
verify/mutate/test_mutate.py::test_unread_bit_is_proven_equivalent
verify/mutate/test_mutate.py::test_weak_test_leaves_survivors_and_results_are_cached
verify/proof/test_formal.py::test_block_meets_its_specification[prefetch_rest]
verify/proof/test_formal.py::test_block_meets_its_specification[report_hold]
verify/proof/test_formal.py::test_block_meets_its_specification[reporter]
verify/proof/test_formal.py::test_block_meets_its_specification[ring_reader]
verify/proof/test_formal.py::test_block_meets_its_specification[ring_writer]
verify/proof/test_formal.py::test_every_specification_finds_its_internal_signals[head_cache]
verify/proof/test_formal.py::test_every_specification_finds_its_internal_signals[prefetch
verify/proof/test_formal.py::test_every_specification_finds_its_internal_signals[report_hold]
verify/proof/test_formal.py::test_every_specification_finds_its_internal_signals[reporter]
verify/proof/test_formal.py::test_every_specification_finds_its_internal_signals[retire]
verify/proof/test_formal.py::test_every_specification_finds_its_internal_signals[ring_reader
verify/proof/test_formal.py::test_every_specification_finds_its_internal_signals[wait_queue]
verify/proof/test_formal.py::test_every_specification_finds_its_internal_signals[window]
verify/soak/test_soak.py::test_cards_survive_a_network
verify/soak/test_soak.py::test_run_succeeds
""".strip().split("\n")

TIERS = {"rtl": tuple(RTL), "programs": tuple(PROGRAMS), "long": tuple(LONG)}


def tiers(name):
    """Return the tiers of the test ``name``, a name below ``tb/test``."""
    return {tier for tier, entries in TIERS.items() if name.startswith(entries)}


def unused(names):
    """Return the entries that no test in ``names`` begins with."""
    return [entry for entries in TIERS.values() for entry in entries
            if not any(name.startswith(entry) for name in names)]
