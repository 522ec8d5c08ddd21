"""Test of each command that a page or ``make help`` names, by its key (see :mod:`commands`).

A value is the test that runs the command or a smaller form of it, as ``FILE::TEST`` below ``tb/test``, with the file
that holds the command if it is another one; for a long command :data:`LONG`, the test of its command line, with tests
that run parts of its work; or the reason why no test runs it.
"""

PAGE = "verify/document/test_commands.py::test_commands_of_a_page_run"
TUTORIAL = "verify/document/test_documents.py::test_commands_of_the_tutorial_run"
LONG = "cli/test_long_commands.py::test_options_reach_the_function"
SMALL = "verify/document/test_small_commands.py::test_small_form"
TARGET = "cli/test_make.py::test_a_target_runs_commands_with_a_test"
BENCH = "verify/bench/test_small_forms.py::test_small_form"
DISPATCH = "verify/bench/test_small_forms.py::test_the_command_line_runs_the_function_of_a_benchmark"
PERFTEST = "app/perf/test_perf.py::test_every_command_prints_the_table_of_perftest, tb/cli/perf.py"
GUEST = "app/machine/test_linux.py::test_a_linux_guest_drives_the_card"
GUEST_SERVES = f"{GUEST}, tb/verify/linux/served_cases.py"
INTEROP = "verify/interop/test_interop.py::test_linux_exchanges_data_with_the_endpoint_and_the_card"
THIS_RUN = "no test: it is the run of the tests, or part of it"
SYSTEM = "no test: it changes the system, or asks for a board or another machine"


def _parts(command_line, *tests):
    """Return the test of a command line whose function it replaces, with tests that run parts of the function."""
    return f"{command_line} for the command line, {', '.join(tests)} for the work"


def _rtl(*tests):
    """Return the tests of a benchmark that simulates two cards for minutes."""
    return _parts(DISPATCH, *tests)


WEFT = {
    "weft bench": _parts(LONG, DISPATCH),
    "weft bench --list": SMALL,
    "weft calibrate": "verify/calibrate/test_calibrate.py::test_command_shows_both_and_stores_the_figures",
    "weft conformance": _parts(LONG, "verify/conformance/test_suite.py::test_every_case_passes",
                               "verify/conformance/test_suite.py::test_every_case_passes_on_the_timing_model",
                               "verify/conformance/test_suite.py::test_some_cases_pass_on_the_rtl"),
    "weft conformance --backend direct --only": SMALL,
    **dict.fromkeys(("weft conformance --backend direct", "weft conformance --backend functional"),
                    "verify/conformance/test_suite.py::test_every_case_passes"),
    "weft conformance --backend model": "verify/conformance/test_suite.py::test_every_case_passes_on_the_timing_model",
    "weft conformance --backend rtl": "verify/conformance/test_suite.py::test_some_cases_pass_on_the_rtl",
    "weft conformance --device": "verify/document/test_small_commands.py::test_conformance_of_a_device",
    "weft conformance --list": SMALL,
    "weft counters": "app/device/test_tools.py::test_counters_of_a_short_run",
    "weft counters --device": "app/device/test_hardware.py::test_two_cards_run_over_their_link",
    "weft coverage": _parts(LONG, "verify/mutate/test_coverage.py::test_counts_of_all_runs_of_a_design_are_added"),
    "weft devices": "cli/test_machine_options.py::test_cards_of_this_machine",
    "weft devinfo": "app/device/test_tools.py::test_devinfo_prints_the_fields_of_ibv_devinfo",
    "weft devinfo --device": "app/device/test_hardware.py::test_devinfo_shows_every_card",
    "weft formal": "test_package.py::test_formal_runs_from_the_wheel",
    "weft interop": _parts(LONG, INTEROP),
    "weft interop --short": "test_package.py::test_interop_runs_from_the_wheel",
    "weft link": "app/serve/test_link.py::test_bad_commands_are_one_sentence",
    "weft link clear": "app/serve/test_link.py::test_a_rejection_of_the_daemon_names_the_option",
    "weft link cut": PAGE,
    "weft link restore": PAGE,
    "weft link rule": PAGE,
    "weft link schedule": "app/serve/test_link.py::test_bad_commands_are_one_sentence",
    "weft link set": "app/serve/test_link.py::test_bad_commands_are_one_sentence",
    "weft link show": PAGE,
    "weft linux": _parts(LONG, GUEST),
    "weft linux --backend rtl": _parts(LONG, GUEST),
    "weft machine": "app/machine/test_machine.py::test_ping_pong_through_pci_functions",
    "weft mutants": _parts(LONG,
                           "verify/mutate/test_mutate.py::test_weak_test_leaves_survivors_and_results_are_cached"),
    "weft mutants --only": _parts(LONG, "verify/mutate/test_mutate.py::test_redundant_cell_is_proven_equivalent"),
    "weft regs": "cli/test_cli.py::test_register_map_is_complete_and_kept_up_to_date",
    "weft report": "test_package.py::test_sweep_of_a_plan_and_report_run_from_the_wheel",
    "weft run": PAGE,
    "weft run --network": PAGE,
    "weft serve": PAGE,
    "weft serve --backend functional": PAGE,
    "weft serve --backend pci": GUEST_SERVES,
    "weft serve --backend pci --device": GUEST_SERVES,
    "weft serve --backend rtl": "app/serve/test_simulated_time.py::test_program_measures_simulated_time",
    "weft serve --faults": "app/serve/test_link.py::test_a_program_survives_a_short_cut_by_schedule",
    "weft serve --link": "app/serve/test_udp_link.py::test_programs_of_two_daemons_connect",
    "weft sim": "app/job/test_entry.py::test_what_is_printed_is_short",
    "weft sim --backend model": TUTORIAL,
    "weft sim --timeline": SMALL,
    "weft soak": _parts(LONG, "cli/test_soak.py::test_seeds_outside_the_tests_come_first"),
    "weft soak --cards": "cli/test_soak.py::test_two_cards_are_soaked_by_option",
    "weft soft-server": "cli/test_long_commands.py::test_a_software_host_needs_a_port_for_its_frames",
    "weft soft-server --qemu": f"{INTEROP}, tb/verify/interop/cases.py",
    "weft soft-server --tap": _parts(LONG, "driver/soft/test_tap.py::test_kernel_reaches_the_endpoint"),
    "weft sweep": "app/sweep/test_sweep.py::test_finished_points_are_not_run_again",
    "weft sweep --of cards": "app/sweep/test_sweep.py::test_two_cards_are_points_on_rtl_and_model",
    "weft sweep --of fabric": SMALL,
    "weft sweep --plan goodput": "test_package.py::test_sweep_of_a_plan_and_report_run_from_the_wheel",
    "weft sweep --plan long_paths": SMALL,
    "weft sweep --plan network": SMALL,
    "weft synth": _parts(LONG, "sim/synth/test_synth.py::test_card_is_mapped_by_block_and_cached"),
    "weft synth --only": _parts(LONG, "sim/synth/test_synth.py::test_subsystems_are_extracted_with_their_blocks"),
    "weft synth --place --only": _parts(
        LONG, "sim/synth/test_synth.py::test_blocks_are_placed_until_an_attempt_is_fast_enough"),
    "weft verilog": f"{_parts(LONG, TARGET)}; `.ci/run` runs it beside the tests, as part of make lint",
    "weft verilog --board": _parts(LONG, "hdl/board/test_project.py::test_top_level_passes_lint",
                                   "hdl/board/test_project.py::test_every_port_has_a_pin"),
    **{f"weft {verb}_{kind}": PERFTEST
       for verb in ("write", "send", "read", "atomic") for kind in ("bw", "lat")},
}
BENCHES = {
    **dict.fromkeys(("linux-hostile", "model", "model-completion", "model-driver", "model-ns3", "model-wraps",
                     "network", "pool", "soak", "soft"), BENCH),
    "adamap-match": _rtl("hdl/adamap/test_matcher.py::test_headers_and_nodes_agree_with_the_model"),
    "adamap-memory": _rtl("verify/bench/test_adamap_figures.py::"
                          "test_subsystem_memory_is_within_its_limit_and_as_in_the_model"),
    "adamap-stall": _rtl("hdl/adamap/test_recovery.py::test_recovery_agrees_with_the_model"),
    "card-bytes": _rtl("verify/bench/test_adamap_figures.py::"
                       "test_subsystem_memory_is_within_its_limit_and_as_in_the_model"),
    "churn": _rtl("verify/churn/test_churn.py::test_node_churn_in_the_rtl"),
    "fuzz": _rtl("verify/fuzz/test_fuzz.py::test_random_frames_do_not_affect_rtl_cards"),
    "hostile": _rtl("verify/bench/test_hostile.py::test_an_attack_costs_an_honest_qp_nothing"),
    "latency": _rtl("app/serve/test_simulated_time.py::test_program_measures_simulated_time"),
    "line-rate": _rtl("verify/bench/test_line_rate.py::test_both_directions_at_once_run_at_line_rate"),
    "linux": _parts(DISPATCH, GUEST),
    "message-rate": _rtl("verify/bench/test_line_rate.py::test_acknowledgements_between_small_writes_block_nothing"),
    "model-card": _rtl("model/card/test_timed_card.py::test_short_transfer_reports_its_rate"),
    "pcie-faults": _rtl("hdl/pcie/test_faults.py::test_misbehaving_host_breaks_nothing"),
    "serve": _parts(DISPATCH, "app/serve/test_figures.py::test_cost_of_library_and_daemon_is_measured",
                    "app/serve/test_kills.py::test_terminated_program_leaves_nothing_and_its_peer_is_notified"),
    "serve-accuracy": _rtl("app/serve/test_simulated_time.py::test_program_measures_simulated_time"),
    "serve-speed": _parts(DISPATCH, "driver/serve/test_direct.py::test_an_unmodified_program_runs",
                          "app/serve/test_verbs_programs.py::test_thousands_of_regions_take_few_resources"),
    "simulation": _rtl("cards/test_crossing.py::test_short_transfer_with_a_loss"),
    "synth": _rtl("sim/synth/test_synth.py::test_figures_of_synthesis"),
    "verbs": _rtl("verify/bench/test_fairness.py::test_messages_of_all_sizes_get_the_same_share"),
}
TARGETS = {
    **dict.fromkeys(("bench", "conformance", "coverage", "docs", "formal", "interop", "linux", "lint", "mutants",
                     "programs", "sim", "soak", "synth", "verilog", "wave"), TARGET),
    "check": THIS_RUN, "test": THIS_RUN, "test-all": THIS_RUN,
    "clean": "cli/test_make.py::test_clean_keeps_the_environment_only",
    "help": "verify/document/test_command_table.py::test_the_help_of_make_lists_every_target",
    "ibverbs": PAGE, "ibverbs PREFIX=": PAGE,
}
MODULES = {
    **dict.fromkeys(("weft.tb.test.driver.channel states", "weft.tb.test.driver.serve.datagram_oracle",
                     "weft.tb.test.driver.serve.oracle", "weft.tb.verify.linux.hostile",
                     "weft.tb.verify.programs.hostile", "weft.tb.verify.programs.run", "weft.tb.verify.prose"), SMALL),
    "pytest": THIS_RUN,
    "weft.driver.soft.dissector": "driver/soft/test_dissector.py::test_dissector_is_printed",
    "weft.tb.sim.synth.flattened": "no test of its size: a minute of Yosys; "
                                  "sim/synth/test_flattened.py::test_boundaries has a small block",
    "weft.tb.sim.synth.same_netlist compare": "sim/synth/test_same_netlist.py::test_only_names_may_differ",
    "weft.tb.sim.synth.same_netlist write": "no test: elaborates a card; "
                                            "sim/synth/test_same_netlist.py::test_only_names_may_differ has its text",
    "weft.tb.verify.conformance.run": "verify/conformance/test_conformance.py::test_verdicts_are_distinguished",
    "weft.tb.verify.programs.kills": "no test of its process, which gives up the rights of root; "
                                     "app/serve/test_kills.py::"
                                     "test_terminated_program_leaves_nothing_and_its_peer_is_notified has its campaign",
    "weft.tb.verify.document.port_waves": "no test: it writes into the checkout; "
                                          "verify/document/test_port_waves.py::test_waves_are_current has the same run",
    "weft.tb.verify.document": "no test: it writes into the checkout; "
                               "verify/document/test_documents.py::test_generated_parts_are_current has the same parts",
}
OTHERS = {
    **dict.fromkeys(("mkdocs", "mypy", "ruff"), "`.ci/run` runs it beside the tests"),
    ".ci/run": THIS_RUN,
    "0000:00:03.0": "no command: output", "0000:03:00.0": "no command: output",
    "apt-get": SYSTEM, "export": SYSTEM, "lspci": SYSTEM, "pip": SYSTEM, "python3": SYSTEM,
    "docker": "no test: needs Docker; app/serve/test_containers.py::"
              "test_steps_run_in_two_namespaces_and_captures_show_losses runs the steps of the containers",
    "fio": "no test: `make programs` runs it; app/serve/test_programs.py::test_rows_have_the_commands_of_a_user",
    "ib_write_bw": PAGE, "ibv_devinfo": PAGE, "ibv_rc_pingpong": PAGE, "rping": PAGE,
    "ip": f"no test here: the system changes; {INTEROP} runs it in a guest",
    "rdma": f"no test here: the system changes; {INTEROP} runs it in a guest",
    "mpicc.mpich": "no test: `make programs` runs it", "mpirun.mpich": "no test: `make programs` runs it",
    "python": TUTORIAL, "tshark": TUTORIAL,
    "qemu-system-x86_64": f"{GUEST}, tb/verify/interop/guest.py",
    "sim_build/weft/bin/weft-run": PAGE, "until": PAGE,
    "weft-run": "app/serve/test_containers.py::test_archive_contains_the_installed_files_and_programs_find_them",
}
TABLE = WEFT | OTHERS | {f"weft bench --only {name}": place for name, place in BENCHES.items()} | {
    f"make {name}": place for name, place in TARGETS.items()} | {
    f"python -m {name}": place for name, place in MODULES.items()}
