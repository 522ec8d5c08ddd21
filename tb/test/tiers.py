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
cards/test_crossing.py::test_short_crossing_with_a_loss[icarus]
cards/test_loss.py::test_too_few_blocks_make_spans
cards/test_pause.py::test_flow_control[drops_without-two clocks]
cards/test_pause.py::test_flow_control[nothing_is_dropped-two clocks]
cards/test_pause.py::test_flow_control[nothing_is_dropped_both_ways-two clocks]
cards/test_pause.py::test_flow_control[what_is_no_pause_does_nothing-two clocks]
cards/test_reset.py::test_reset_in_flight[nodes_in_flight]
cards/test_two_clocks.py::test_two_clocks[crossing-rough_both_ways]
cards/test_two_clocks.py::test_two_clocks[outage-hot_reset]
cards/test_two_clocks.py::test_two_clocks[reset-function_reset]
cards/test_two_clocks.py::test_two_clocks[reset-payload_in_flight]
hdl/adamap/test_builder.py::test_builder_of_some_encodings
hdl/adamap/test_recovery.py::test_recovery_agrees_with_the_model[icarus]
hdl/adamap/test_recovery.py::test_recovery_with_slack_and_a_tiny_cache
hdl/adamap/test_window.py::test_verdicts_and_holes_agree_with_the_model[verilator-512]
hdl/board/test_crossings.py::test_all_crossings_are_known[card]
hdl/board/test_crossings.py::test_all_known_crossings_are_there[card]
hdl/board/test_crossings.py::test_no_logic_crosses[card]
hdl/mac/test_pause_crossing.py::test_pause_crossing[icarus]
hdl/pcie/test_usplus.py::test_traffic_with_a_late_and_reordering_host[icarus-256,1024,1]
test_package.py::test_formal_runs_from_the_wheel
test_package.py::test_interop_runs_from_the_wheel
test_package.py::test_report_runs_from_the_wheel
test_package.py::test_sweep_of_a_plan_runs_from_the_wheel
verify/bench/test_adamap_figures.py::test_the_room_holds_what_it_may
verify/bench/test_hostile.py::test_an_attack_costs_an_honest_qp_nothing[wrong_key]
verify/bench/test_line_rate.py::test_other_settings_run_at_line_rate
verify/proof/test_formal.py::test_block_meets_its_specification[prefetch_rest]
verify/proof/test_formal.py::test_block_meets_its_specification[ring_writer]
verify/proof/test_formal.py::test_every_specification_finds_what_it_sees_and_frees_inside_its_block[prefetch
""".strip().split("\n")

TIERS = {"rtl": RTL, "long": LONG}


def tiers(name):
    """Return the tiers of the test ``name``, a name below ``tb/test``."""
    return {tier for tier, entries in TIERS.items() if any(name.startswith(entry) for entry in entries)}


def unused(names):
    """Return the entries that no test in ``names`` begins with."""
    return [entry for entries in TIERS.values() for entry in entries
            if not any(name.startswith(entry) for name in names)]
