"""Tests of benchmarks by the command line, in a small form.

Limits of figures hold at full size only; here a figure is measured, and stored with its command.
"""

from dataclasses import replace
from functools import partial

import pytest

from weft.hdl.contract import abi
from weft.model.wan import result
from weft.tb.test.app.serve.conftest import needs_namespaces
from weft.tb.test.model.ready import compile_once
from weft.tb.test.system import need
from weft.tb.test.verify.bench.command import bench
from weft.tb.test.verify.soak.test_soak import pretended
from weft.tb.verify.bench import (
    adamap_interleaved,
    adamap_match,
    adamap_match_window,
    adamap_stall,
    driver_cost,
    fairness,
    message_rate,
    model_card,
    network,
    ns3,
    ns3_dcqcn,
    overload,
    pacing,
    reaction,
    serve_accuracy,
    serve_speed,
    small_pools,
    soft,
    verbs,
    wide_area,
    wide_area_long,
)
from weft.tb.verify.bench import run as run_bench
from weft.tb.verify.bench.benchmark import BENCHMARKS
from weft.tb.verify.linux import hostile as hostile_machines
from weft.tb.verify.programs import figures as served
from weft.tb.verify.programs.namespaces import namespaces
from weft.tb.verify.soak import campaign, pcie_faults, report
from weft.tb.verify.soak.plan import TURNS

__all__ = ["needs_namespaces"]      # a fixture

KIB = 1 << 10
SHORT = wide_area.BASE.with_(rtt_ms=0.1, warmup_rtts=2, measured_rtts=4)
PAIR = network.SHORT.with_(warmup_rtts=10, measured_rtts=10)
NS3 = {"ns3_path": "awk -v sent=$1 -v loss=$5 'BEGIN { print 0.5, int(sent * (1 - loss)) }'",
       "ns3_dcqcn": "awk -v flows=$1 -v steps=$2 'BEGIN { for (; steps > 0; steps--) print 1000, 10e9 * flows }'"}


def short(stream):
    """Return a stream of small messages with a tenth of them."""
    return replace(stream, payload=stream.payload // 10, window=stream.window // 10)


def forwarder(folder, name="ns3_path"):
    """Create a program with the output of one that runs ns-3."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{NS3[name]}\n")
    program.chmod(0o755)
    return program


# Changes of sizes, by benchmark: (module or keyword defaults of a function, name, value).
SMALL = {
    "linux-hostile": [(hostile_machines, "MESSAGES", 200), (hostile_machines, "ATTACKERS", 2),
                      (hostile_machines, "PARTNERS", 1)],
    "model": [(wide_area, "PARTS", (wide_area.goodput, wide_area.outage)), (wide_area, "LARGE", SHORT),
              (wide_area, "BASE", SHORT), (wide_area, "LOSSES", (0.0, 1e-2)), (wide_area, "OUTAGE_MS", 0.2)],
    "model-completion": [(wide_area_long, "TRANSFER", wide_area_long.TRANSFER.with_(rtt_ms=0.1, transfer_mib=1)),
                         (wide_area_long.completion, "__defaults__", (3,))],
    "model-driver": [(model_card, "LONG_BYTES", 2 * model_card.MIB), (model_card, "RTT_NS", 20_000),
                     (model_card, "SAMPLE_NS", 5_000), (model_card.Haul.__init__.__kwdefaults__, "rtt_ns", 20_000)],
    "model-wraps": [(wide_area_long, "FAR", wide_area_long.FAR.with_(rtt_ms=0.1)),
                    (wide_area_long.wraps, "__defaults__", (0.01,))],
    "network": [(network, "SHORT", PAIR), (network, "FLOWS", (2,)), (network, "INCASTS", network.INCASTS[:1]),
                (network, "LOSSES", (0.0,)), (network, "BUFFERS", (1.0,)), (network, "RECOVERIES", ("irn",)),
                (network, "LONG", network.LONG.with_(rtt_us=100, warmup_rtts=4, measured_rtts=4)),
                (reaction, "PARTS", reaction.PARTS[:1]), (reaction, "LENGTH", {"timed": 512 * KIB}),
                (pacing.rows, "__defaults__", ((replace(pacing.CASES[0], ns=20_000),),))],
    "pool": [(small_pools.squeezed.__kwdefaults__, "length", 100_000)],
    "soft": [(soft, "SIZES", (64,)), (soft, "LATENCIES", 1), (soft, "QPS", (1,)), (soft, "RATIO_BYTES", 4 * KIB),
             (soft, "THROUGHPUT", ((4 * KIB, 2),))],
    "soak": [(report, "BENCHMARK_CYCLES", 300), (report, "soak", None)],
    "model-ns3": [(ns3, "program", None), (ns3, "RTTS", 0.2)],
    "network-ns3": [(ns3, "program", None), (ns3_dcqcn, "STEPS", 20)],
}

OF_PROGRAMS = {
    "serve": [(served, "ROUNDS", 3), (served, "SPIN_S", 0.2), (served, "IDLE_S", 0.2), (served, "START_S", 1),
              (served.registrations, "__defaults__", (20,)), (served.messages, "__defaults__", (20,)),
              (served.kills, "__defaults__", (2,))],
    "serve-speed": [(serve_speed, "RUNS", 1), (serve_speed, "REGIONS", 100), (serve_speed, "SIZE", ("-n", "200")),
                    (serve_speed, "SMALL", ("-s", "64", "-n", "2000")),
                    (serve_speed, "LATENCY", ("-s", "8", "-n", "200"))],
    "serve-accuracy": [(serve_accuracy, "BANDWIDTH", ("-n", "8")), (serve_accuracy, "BRIEF", ("-n", "6")),
                       (serve_accuracy, "LATENCY", ("-n", "5", "-s", "64")), (verbs, "MESSAGES", verbs.WINDOW)],
}
FEW = overload.Load("few", messages=640, window=400)
OF_GATEWARE = {
    "adamap-match": [(adamap_match.measure, "__defaults__", (("list_1", "bitmap_1"), "icarus")),
                     (adamap_match_window.measure, "__defaults__", (None, "icarus", (abi.Encoding.LIST,)))],
    "adamap-stall": [(adamap_stall, "MATCHES", {"batched": 60}), (adamap_interleaved, "MATCHES", 60),
                     (adamap_stall.measure.__kwdefaults__, "cases", [("batched", 4, "", "")]),
                     (adamap_stall.measure.__kwdefaults__, "sim", "icarus"),
                     (adamap_interleaved.measure, "__defaults__", (adamap_interleaved.CASES[:1], None))],
    "message-rate": [(message_rate.run_messages, "__defaults__", ((short(message_rate.STREAMS[0]),),)),
                     (message_rate.run_messages.__kwdefaults__, "large", 1),
                     *((message_rate, name, tuple(map(short, getattr(message_rate, name))))
                       for name in ("DEEP_STREAMS", "STRADDLE_STREAMS")),
                     (message_rate, "DEEP", {}), (overload, "DEEP", {}),
                     (overload, "LOADS", {"slow_host": (overload.RING_LOG2, (
                         replace(FEW, name="slow_host", held=overload.HELD),
                         replace(FEW, name="slow_host_8qps", qps=8, held=overload.HELD)))})],
    "pcie-faults": [(pcie_faults, "FAULTS", 200), (pcie_faults, "RUNS", 1), (pcie_faults, "CARD_CYCLES", 20_000),
                    (pcie_faults, "CARD_RUNS", (("PCIe faults",),)), (pcie_faults, "BUSY", TURNS.index("test"))],
    "verbs": [(verbs, "MESSAGES", verbs.WINDOW), (driver_cost, "CHAINS", driver_cost.WARM + 1),
              (fairness, "BEGIN_NS", 50_000), (fairness.Contest.__init__.__kwdefaults__, "measured_ns", 100_000)],
}


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Return a function that runs ``weft bench`` with options after changes and returns the rows of its report."""
    made = {"program": partial(forwarder, tmp_path),
            "soak": partial(campaign.soak, run=pretended, run_cycles=100,
                            kept=campaign.ResultCache(100, tmp_path / "soak"))}

    def run(options, changes):
        for owner, attribute, value in changes:
            change = monkeypatch.setitem if isinstance(owner, dict) else monkeypatch.setattr
            change(owner, attribute, made[attribute] if value is None else value)
        return bench(monkeypatch, tmp_path, *options, within=False)

    return run


@pytest.mark.parametrize("name", SMALL)
def test_small_form(name, measured):
    compile_once(result)
    rows = measured(["--only", name], SMALL[name])
    assert rows and {row["command"] for row in rows} == {f"weft bench --only {name}"}


@pytest.mark.parametrize("name", OF_PROGRAMS)
def test_small_form_with_programs(name, measured, needs_namespaces):
    need("ib_write_bw")
    with needs_namespaces(), namespaces():
        pass
    rows = measured(["--only", name], OF_PROGRAMS[name])
    assert rows and {row["command"] for row in rows} == {f"weft bench --only {name}"}


@pytest.mark.parametrize("name", OF_GATEWARE)
def test_small_form_of_gateware(name, measured):
    """Cards read no further ahead than those of other tests, which share their simulators."""
    rows = measured(["--only", name], OF_GATEWARE[name])
    assert rows and {row["command"] for row in rows} == {f"weft bench --only {name}"}


def test_without_a_name_all_benchmarks_run(measured):
    names = ("pool", "soft")
    found = measured([], [(run_bench, "BENCHMARKS", {name: BENCHMARKS[name] for name in names}),
                          *(change for name in names for change in SMALL[name])])
    assert {row["command"] for row in found} == {f"weft bench --only {name}" for name in names}


@pytest.mark.parametrize(("name", "within"), [("latency", True), ("simulation", False), ("model-card", False)])
def test_short_benchmarks_run_in_full_size(name, within, monkeypatch, tmp_path):
    """The limits of the last two depend on this machine."""
    rows = bench(monkeypatch, tmp_path, "--only", name, within=within)
    assert rows and {row["command"] for row in rows} == {f"weft bench --only {name}"}
