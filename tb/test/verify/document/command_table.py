"""Test of each command that a page or ``make help`` names, by its key (see :mod:`commands`).

A value is the test that runs the command or a smaller form of it, as ``FILE::TEST`` below ``tb/test``, with the file
that holds the command if it is another one.
"""

PAGE = "verify/document/test_commands.py::test_commands_of_a_page_run"
TUTORIAL = "verify/document/test_documents.py::test_commands_of_the_tutorial_run"
LONG = "cli/test_long_commands.py::test_small_form"
SMALL = "verify/document/test_small_commands.py::test_small_form"
TARGET = "cli/test_make.py::test_a_target_runs_commands_with_a_test"
BENCH = "verify/bench/test_small_forms.py::test_small_form"
PERFTEST = "app/perf/test_perf.py::test_every_command_prints_the_table_of_perftest, tb/cli/perf.py"
GUEST = "app/machine/test_linux.py::test_a_linux_guest_drives_the_card"
GUEST_SERVES = f"{GUEST}, tb/verify/linux/served_cases.py"
INTEROP = "verify/interop/test_interop.py::test_linux_exchanges_data_with_the_endpoint_and_the_card"
SUITE = "verify/conformance/test_suite.py::test_some_cases_pass_on_every_back_end"
CI = "cli/test_ci.py::test_lint_documentation_and_all_tests_run"
TIERS = "cli/test_ci.py::test_each_tier_has_its_tests"


WEFT = {
    "weft bench": "verify/bench/test_small_forms.py::test_without_a_name_all_benchmarks_run",
    "weft bench --list": SMALL,
    "weft calibrate": "verify/calibrate/test_calibrate.py::test_command_shows_both_and_stores_the_figures",
    "weft conformance": SUITE,
    "weft conformance --backend direct --only": SMALL,
    **dict.fromkeys(("weft conformance --backend direct", "weft conformance --backend functional"),
                    "verify/conformance/test_suite.py::test_every_case_passes"),
    "weft conformance --backend model": "verify/conformance/test_suite.py::test_every_case_passes_on_the_timing_model",
    "weft conformance --backend rtl": SUITE,
    "weft conformance --device": "verify/document/test_small_commands.py::test_conformance_of_a_device",
    "weft conformance --list": SMALL,
    "weft counters": "app/device/test_tools.py::test_counters_of_a_short_run",
    "weft counters --device": "app/device/test_hardware.py::test_two_cards_run_over_their_link",
    "weft coverage": LONG, "weft coverage --only": LONG,
    "weft devices": "cli/test_machine_options.py::test_cards_of_this_machine",
    "weft devinfo": "app/device/test_tools.py::test_devinfo_prints_the_fields_of_ibv_devinfo",
    "weft devinfo --device": "app/device/test_hardware.py::test_devinfo_shows_every_card",
    "weft formal": "test_package.py::test_formal_runs_from_the_wheel",
    "weft interop": INTEROP, "weft interop --short": INTEROP,
    "weft interop --only": "verify/interop/test_interop.py::test_perftest_in_the_guest_reaches_the_server",
    "weft link": "app/serve/test_link.py::test_bad_commands_are_one_sentence",
    "weft link clear": "app/serve/test_link.py::test_a_rejection_of_the_daemon_names_the_option",
    "weft link cut": PAGE,
    "weft link restore": PAGE,
    "weft link rule": PAGE,
    "weft link schedule": "app/serve/test_link.py::test_bad_commands_are_one_sentence",
    "weft link set": "app/serve/test_link.py::test_bad_commands_are_one_sentence",
    "weft link show": PAGE,
    "weft linux": GUEST, "weft linux --backend rtl": GUEST,
    "weft machine": "app/machine/test_machine.py::test_ping_pong_through_pci_functions",
    "weft mutants": LONG, "weft mutants --only": LONG,
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
    "weft soak": LONG,
    "weft soak --cards": "cli/test_soak.py::test_two_cards_are_soaked_by_option",
    "weft soft-server": "cli/test_soft_server.py::test_a_software_host_needs_a_port_for_its_frames",
    "weft soft-server --qemu": "verify/interop/test_interop.py::test_perftest_in_the_guest_reaches_the_server, "
                               "tb/verify/interop/cases.py",
    "weft soft-server --tap": "cli/test_soft_server.py::"
                              "test_the_kernel_reaches_a_host_that_is_set_up_as_on_the_page",
    "weft sweep": "app/sweep/test_sweep.py::test_finished_points_are_not_run_again",
    "weft sweep --of cards": "app/sweep/test_sweep.py::test_two_cards_are_points_on_rtl_and_model",
    "weft sweep --of fabric": SMALL,
    "weft sweep --plan goodput": "test_package.py::test_sweep_of_a_plan_and_report_run_from_the_wheel",
    "weft sweep --plan long_paths": SMALL,
    "weft sweep --plan network": SMALL,
    "weft synth": LONG, "weft synth --only": LONG, "weft synth --place --only": LONG,
    "weft verilog": SMALL, "weft verilog --board": SMALL,
    **{f"weft {verb}_{kind}": PERFTEST
       for verb in ("write", "send", "read", "atomic") for kind in ("bw", "lat")},
}
BENCHES = {
    **dict.fromkeys(("linux-hostile", "model", "model-completion", "model-driver", "model-ns3", "model-wraps",
                     "network", "network-ns3", "pool", "soak", "soft"), BENCH),
    **dict.fromkeys(("adamap-memory", "card-bytes"), "verify/bench/test_adamap_figures.py::"
                    "test_subsystem_memory_is_within_its_limit_and_as_in_the_model"),
    "churn": "verify/churn/test_churn.py::test_node_churn_in_the_rtl",
    "fuzz": "verify/fuzz/test_fuzz.py::test_random_frames_do_not_affect_rtl_cards",
    "hostile": "verify/bench/test_hostile.py::test_an_attack_costs_an_honest_qp_nothing",
    **dict.fromkeys(("latency", "model-card", "simulation"),
                    "verify/bench/test_small_forms.py::test_short_benchmarks_run_in_full_size"),
    "line-rate": "verify/bench/test_line_rate.py::test_both_directions_at_once_run_at_line_rate",
    **dict.fromkeys(("serve", "serve-accuracy", "serve-speed"),
                    "verify/bench/test_small_forms.py::test_small_form_with_programs"),
    **dict.fromkeys(("adamap-match", "adamap-stall", "message-rate", "pcie-faults", "verbs"),
                    "verify/bench/test_small_forms.py::test_small_form_of_gateware"),
    "linux": "app/machine/test_linux.py::test_figures_of_a_guest",
    "synth": LONG,
}
TARGETS = {
    **dict.fromkeys(("bench", "conformance", "coverage", "docs", "formal", "interop", "linux", "lint", "mutants",
                     "programs", "sim", "soak", "synth", "verilog", "wave"), TARGET),
    **dict.fromkeys(("check", "test", "test-all"), TIERS),
    "clean": "cli/test_make.py::test_clean_keeps_the_environment_only",
    "help": "verify/document/test_command_table.py::test_the_help_of_make_lists_every_target",
    "ibverbs": PAGE, "ibverbs PREFIX=": PAGE,
}
MODULES = {
    **dict.fromkeys(("weft.tb.test.driver.channel states", "weft.tb.test.driver.serve.datagram_oracle",
                     "weft.tb.test.driver.serve.oracle", "weft.tb.verify.linux.hostile",
                     "weft.tb.verify.programs.hostile", "weft.tb.verify.programs.run", "weft.tb.verify.prose"), SMALL),
    "pytest": TIERS,
    "weft.driver.soft.dissector": "driver/soft/test_dissector.py::test_dissector_is_printed",
    "weft.tb.sim.synth.flattened":
        "sim/synth/test_flattened.py::test_logic_across_a_boundary_is_mapped_together_without_it",
    **dict.fromkeys(("weft.tb.sim.synth.same_netlist compare", "weft.tb.sim.synth.same_netlist write"),
                    "sim/synth/test_same_netlist.py::test_the_netlist_of_a_card_is_written_and_compared"),
    "weft.tb.verify.conformance.run": "verify/conformance/test_conformance.py::test_verdicts_are_distinguished",
    "weft.tb.verify.programs.kills":
        "app/serve/test_kills.py::test_terminated_program_leaves_nothing_and_its_peer_is_notified",
    "weft.tb.verify.document": "verify/document/test_documents.py::test_generated_parts_are_current",
    "weft.tb.verify.document.port_waves": "verify/document/test_port_waves.py::test_waves_are_current",
}
OTHERS = {
    **dict.fromkeys((".ci/run", "mkdocs", "mypy", "ruff"), CI),
    "apt-get": "cli/test_ci.py::test_packages_of_pages_and_images_are_those_of_the_tests",
    "docker": "app/serve/test_containers.py::test_commands_of_the_containers_on_the_page_run",
    "fio": PAGE, "ib_write_bw": PAGE, "ibv_devinfo": PAGE, "ibv_rc_pingpong": PAGE, "rping": PAGE,
    "ip": "cli/test_soft_server.py::test_the_kernel_reaches_a_host_that_is_set_up_as_on_the_page",
    "lspci": f"{GUEST}, tb/verify/linux/guest_programs.py",
    "mpicc.mpich": PAGE, "mpirun.mpich": PAGE,
    "pip": "cli/test_ci.py::test_a_page_installs_the_package_as_make_does",
    "python3": "verify/document/test_commands.py::test_the_registers_of_a_board_are_read_as_on_the_page",
    "rdma": "verify/interop/test_interop.py::test_the_guest_is_set_up_as_on_the_page, tb/verify/interop/init.sh",
    "python": TUTORIAL, "tshark": TUTORIAL,
    "qemu-system-x86_64": f"{GUEST}, tb/verify/interop/guest.py",
    "sim_build/weft/bin/weft-run": PAGE, "until": PAGE,
    "weft-run": "app/serve/test_containers.py::test_archive_contains_the_installed_files_and_programs_find_them",
}
TABLE = WEFT | OTHERS | {f"weft bench --only {name}": place for name, place in BENCHES.items()} | {
    f"make {name}": place for name, place in TARGETS.items()} | {
    f"python -m {name}": place for name, place in MODULES.items()}
