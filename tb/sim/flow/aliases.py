"""Former names of benchmarks, options, figures and report fields, as aliases for one minor version: until 0.3.

``weft bench --only`` accepts both names of a benchmark. Reports have a renamed figure or field under both names.
"""

# Former name -> name.
BENCHMARKS = {"lives": "churn", "serve-truth": "serve-accuracy"}
OPTIONS = {"--anew": "--fresh"}
FIGURES = {
    "adamap_node_lives_functional": "adamap_nodes_functional",
    "adamap_node_lives_rtl": "adamap_nodes_rtl",
    "overload_sent_again_few_reports": "overload_retransmissions_few_reports",
    "overload_sent_again_slow_host": "overload_retransmissions_slow_host",
    "overload_twice_few_reports": "overload_duplicates_few_reports",
    "overload_twice_slow_host": "overload_duplicates_slow_host",
    "pcie_fault_errors_told": "pcie_fault_errors_reported",
    "serve_kills_peers_told": "serve_kills_peers_notified",
    "serve_packets_lost_not_sent_again": "serve_packets_lost_not_retransmitted",
}
# By name of the report in ``sim_build/reports``.
FIELDS = {"formal": {"broken": "faulty"}, "mutants": {"room": "subsystem"}, "sim": {"pauses_asked": "pauses_requested"}}


def option_names(name):
    """Return the names of an option of the command line: ``name`` and its former names."""
    return name, *(former for former, new in OPTIONS.items() if new == name)


def with_former_figures(rows):
    """Return rows of ``bench.json``, each renamed one also under its former name, with the field ``alias_of``."""
    former = {name: old for old, name in FIGURES.items()}
    return [*rows, *({**row, "name": former[row["name"]], "alias_of": row["name"]}
                     for row in rows if row["name"] in former)]


def current_figures(rows):
    """Return rows of ``bench.json`` of this or the former version under their current names, without aliases."""
    return [{**row, "name": FIGURES.get(row["name"], row["name"])} for row in rows if "alias_of" not in row]


def with_former_fields(report, data):
    """Return plain data of ``report`` in which each renamed field exists under its former name, too."""
    former = {name: old for old, name in FIELDS[report].items()}
    return _each(data, lambda fields: {key: value for name, value in fields.items()
                                       for key in (name, former.get(name, name))})


def current_fields(report, data):
    """Return plain data of ``report`` of this or the former version, with current names of the fields only."""
    names = FIELDS[report]
    return _each(data, lambda fields: {names.get(name, name): value for name, value in fields.items()
                                       if names.get(name) not in fields})


def _each(data, change):
    """Return plain data with every dictionary changed."""
    if isinstance(data, dict):
        return change({name: _each(value, change) for name, value in data.items()})
    return [_each(value, change) for value in data] if isinstance(data, list | tuple) else data
