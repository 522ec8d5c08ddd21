"""Tiers of the tests: those that need a simulator of RTL, and those that only ``make test-all`` runs.

``make check`` runs tests in neither list, ``make test`` all but the long ones, ``make test-all`` all. An entry is
the beginning of a test's name below ``tb/test``.
"""

# Tests that simulate, elaborate or prove RTL. The simulator refuses to start for other tests in `make check`.
RTL = """
app/job
app/perf/test_perf.py::test_the_model_finds_what_the_rtl_finds
app/serve/test_page.py
app/serve/test_simulated_time.py::test_a_program_measures_cards_in_time[rtl]
app/sweep/test_sweep.py::test_runs_of_two_cards_are_points_on_the_rtl_and_in_the_model
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
verify/fuzz
verify/interop
verify/lives
verify/mutate
verify/proof
verify/soak
""".split()

# Each repeats, for other parameters, seeds or the slower simulator, a shorter test outside this list.
LONG = """
app/job/test_captures.py::test_captures_of_a_clean_run_read_well
app/job/test_entry.py::test_odd_names_and_surroundings
app/job/test_main_job.py::test_bad_link_in_both_directions[2]
app/job/test_main_job.py::test_bad_link_in_both_directions[3]
app/job/test_main_job.py::test_bad_link_in_both_directions[4]
app/job/test_main_job.py::test_bad_link_in_both_directions[5]
app/job/test_main_job.py::test_very_bad_link
app/serve/test_simulated_time.py::test_a_program_measures_cards_in_time[rtl]
cards/test_crossing.py::test_case[rings_wrap]
cards/test_crossing.py::test_case[rough_both_ways]
cards/test_crossing.py::test_short_crossing_with_a_loss[icarus]
cards/test_damage.py::test_what_is_damaged_in_memory_concerns_those_it_belongs_to[inline_descriptors]
cards/test_damage.py::test_what_is_damaged_in_memory_concerns_those_it_belongs_to[nodes]
cards/test_loss.py::test_each_loss_is_repaired_once_and_without_a_timer[burst_of_512]
cards/test_loss.py::test_each_loss_is_repaired_once_and_without_a_timer[bursts_of_64]
cards/test_loss.py::test_each_loss_is_repaired_once_and_without_a_timer[comb]
cards/test_loss.py::test_each_loss_is_repaired_once_and_without_a_timer[holes_reported_at_once]
cards/test_loss.py::test_each_loss_is_repaired_once_and_without_a_timer[outages]
cards/test_loss.py::test_too_few_blocks_make_spans
cards/test_outage.py::test_a_card_that_is_taken_away_ends_what_waits_for_it[bus_master_cleared]
cards/test_outage.py::test_a_card_that_is_taken_away_ends_what_waits_for_it[bus_master_cleared_for_a_moment]
cards/test_outage.py::test_a_card_that_is_taken_away_ends_what_waits_for_it[surprise_removal_of_a_sender]
cards/test_pause.py::test_flow_control[a_deaf_peer_does_no_harm-one clock]
cards/test_pause.py::test_flow_control[a_deaf_peer_does_no_harm-two clocks]
cards/test_pause.py::test_flow_control[a_liar_does_not_hold_the_card-one clock]
cards/test_pause.py::test_flow_control[a_liar_does_not_hold_the_card-two clocks]
cards/test_pause.py::test_flow_control[drops_without-one clock]
cards/test_pause.py::test_flow_control[drops_without-two clocks]
cards/test_pause.py::test_flow_control[nothing_is_dropped-one clock]
cards/test_pause.py::test_flow_control[nothing_is_dropped-two clocks]
cards/test_pause.py::test_flow_control[nothing_is_dropped_both_ways-two clocks]
cards/test_pause.py::test_flow_control[what_is_no_pause_does_nothing-one clock]
cards/test_pause.py::test_flow_control[what_is_no_pause_does_nothing-two clocks]
cards/test_reset.py::test_reset_in_flight[function_reset]
cards/test_reset.py::test_reset_in_flight[nodes_in_flight]
cards/test_two_clocks.py::test_two_clocks
cli/test_soak.py::test_seeds_that_the_tests_leave_out_come_first
driver/operation/test_operations.py::test_random_operations
driver/send/test_loss_models.py::test_each_loss_is_repaired_once_and_without_a_timer[comb 7]
driver/send/test_loss_models.py::test_each_loss_is_repaired_once_and_without_a_timer[outage
driver/soft/test_two_cards.py::test_phase_two_of_the_document[rtl]
hdl/adamap/test_broken.py::test_broken_list_stops_its_qp[verilator]
hdl/adamap/test_builder.py::test_builder_of_some_encodings
hdl/adamap/test_builder.py::test_nodes_hold_every_hole_in_the_best_encoding[icarus]
hdl/adamap/test_fetching.py::test_nodes_of_many_lists_are_read[icarus]
hdl/adamap/test_lists.py::test_lists_of_a_known_shape_are_matched[icarus]
hdl/adamap/test_matcher.py::test_headers_and_nodes_agree_with_the_model[icarus]
hdl/adamap/test_matcher_limits.py::test_matcher_at_its_limits[icarus]
hdl/adamap/test_recovery.py::test_recovery_agrees_with_the_model[icarus]
hdl/adamap/test_recovery.py::test_recovery_with_slack_and_a_tiny_cache
hdl/adamap/test_window.py::test_verdicts_and_holes_agree_with_the_model[verilator-512]
hdl/board/test_crossings.py::test_all_crossings_are_known[card]
hdl/board/test_crossings.py::test_all_known_crossings_are_there[card]
hdl/board/test_crossings.py::test_no_logic_crosses[card]
hdl/board/test_crossings.py::test_registers_of_synchronisers_have_their_attribute[card]
hdl/mac/test_pause_crossing.py::test_pause_crossing[icarus]
hdl/part/test_stream_parts.py::test_stream_parts[icarus]
hdl/pcie/test_dma_read.py::test_reads_return_the_bytes_asked_for[icarus]
hdl/pcie/test_dma_read.py::test_reads_with_straddle
hdl/pcie/test_endpoint.py::test_held_room_comes_to_rest[icarus]
hdl/pcie/test_faults.py::test_a_host_that_misbehaves_breaks_nothing[straddle]
hdl/pcie/test_host_control.py::test_the_host_is_obeyed[icarus]
hdl/pcie/test_host_control.py::test_the_host_is_obeyed_with_straddle
hdl/pcie/test_usplus.py::test_host_requests_interrupts_and_errors[icarus]
hdl/pcie/test_usplus.py::test_interrupts_and_errors_with_straddle
hdl/pcie/test_usplus.py::test_traffic_with_a_late_and_reordering_host[icarus-256,1024,1]
hdl/pcie/test_usplus.py::test_traffic_with_straddle
hdl/receive/test_parse.py::test_every_frame_is_classified_as_the_model_does[icarus]
hdl/receive/test_receive.py::test_packets_are_checked_judged_and_placed_in_order[icarus]
hdl/transmit/test_transmit.py::test_transmit_room[icarus]
sim/flow/test_places.py::test_every_path_may_have_spaces[verilator]
sim/flow/test_simulate.py::test_waves_are_recorded[verilator]
sim/synth/test_flattened.py::test_what_crosses_a_boundary_is_mapped_together_without_it
sim/synth/test_synth.py::test_blocks_are_placed_until_one_try_is_fast_enough
sim/synth/test_synth.py::test_the_mapper_counts_as_the_estimate_does
sim/wave/test_wave.py::test_every_trace_is_in_the_waves_and_every_state_has_a_name[verilator]
test_package.py::test_formal_runs_from_the_wheel
test_package.py::test_interop_runs_from_the_wheel
test_package.py::test_report_runs_from_the_wheel
test_package.py::test_sweep_of_a_plan_runs_from_the_wheel
verify/bench/test_adamap_figures.py::test_the_room_holds_what_it_may
verify/bench/test_hostile.py::test_an_attack_costs_an_honest_qp_nothing[wrong_key]
verify/bench/test_line_rate.py::test_other_settings_run_at_line_rate
verify/calibrate/test_calibrate.py::test_headers_wait_for_nodes_as_long_as_in_the_gateware[fit-more-22]
verify/calibrate/test_calibrate.py::test_headers_wait_for_nodes_as_long_as_in_the_gateware[fit-more-24]
verify/calibrate/test_calibrate.py::test_slots_of_payload_and_lines_of_a_read_take_the_gatewares_time[fit-third-13]
verify/document/test_documents.py::test_points_of_the_picture_are_what_the_model_gives_now[adamap-0.01]
verify/lives/test_lives.py::test_a_card_that_forgets_generations_is_caught
verify/lives/test_lives.py::test_nodes_live_and_die
verify/proof/test_formal.py::test_block_meets_its_specification[prefetch_rest]
verify/proof/test_formal.py::test_block_meets_its_specification[report_hold]
verify/proof/test_formal.py::test_block_meets_its_specification[reporter]
verify/proof/test_formal.py::test_block_meets_its_specification[ring_reader]
verify/proof/test_formal.py::test_block_meets_its_specification[ring_writer]
verify/proof/test_formal.py::test_every_specification_finds_what_it_sees_and_frees_inside_its_block[prefetch
verify/proof/test_formal.py::test_every_specification_finds_what_it_sees_and_frees_inside_its_block[reporter]
verify/soak/test_soak.py::test_a_run_goes_well[hot reset, bus master cleared]
""".strip().split("\n")

TIERS = {"rtl": RTL, "long": LONG}


def tiers(name):
    """Return the tiers of the test ``name``, a name below ``tb/test``."""
    return {tier for tier, entries in TIERS.items() if any(name.startswith(entry) for entry in entries)}


def unused(names):
    """Return the entries that no test in ``names`` begins with."""
    return [entry for entries in TIERS.values() for entry in entries
            if not any(name.startswith(entry) for name in names)]
