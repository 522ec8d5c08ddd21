"""Main job on a fabric: several senders, timed cards and RTL."""

import io
import json

import pytest
from rich.console import Console

from weft.hdl.contract.params import preset
from weft.model.settings import BadSetting
from weft.tb.app.job import main_job
from weft.tb.app.job import run as run_sim
from weft.tb.app.job.job import Job
from weft.tb.app.job.job_settings import JobSettings
from weft.tb.app.job.report import print_report
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.link.pcap import read_pcap
from weft.tb.sim.pair.network import sides_of
from weft.tb.sim.pair.two_cards import cards_name, top_of, two_cards_text
from weft.tb.test.app.job.test_entry import some_file
from weft.tb.test.app.job.test_main_job import DEFAULTS, assert_exact

SHALLOW = """
hosts = ["x", "y", "z"]

[[switch]]
name = "s"
buffer_kib = 32
alpha = 128

[[link]]
a = "x"
b = "s"

[[link]]
a = "y"
b = "s"

[[link]]
a = "s"
b = "z"
rate_gbps = 25

[[flow]]
source = "x"
destination = "z"

[[flow]]
source = "y"
destination = "z"
start_us = 5

[[flow]]
source = "z"
destination = "x"
"""
PAUSING = SHALLOW.replace("buffer_kib = 32\n", "buffer_kib = 256\npfc = true\npause_kib = 64\n")
INCAST = """
hosts = ["a0", "a1", "a2", "b"]
switch = [{name = "s", buffer_kib = 512}]
watched = ["s", "b"]
link = [{a = "a0", b = "s"}, {a = "a1", b = "s"}, {a = "a2", b = "s"}, {a = "s", b = "b"}]
flow = [{source = "a0", destination = "b"}, {source = "a1", destination = "b"}, {source = "a2", destination = "b"}]
"""
TWO_PATHS = """
hosts = ["x", "y"]
switch = [{name = "s"}, {name = "p"}, {name = "q"}, {name = "t"}]

[[link]]
a = "x"
b = "s"

[[link]]
a = "s"
b = "p"
down_us = [[3, 20]]

[[link]]
a = "s"
b = "q"
down_us = [[20, 40]]

[[link]]
a = "p"
b = "t"

[[link]]
a = "q"
b = "t"

[[link]]
a = "t"
b = "y"

[[flow]]
source = "x"
destination = "y"
"""


def run_on(folder, fabric, size=100_000, **settings):
    """Run the job with timed cards on a fabric; return its report."""
    seed = settings.pop("seed", drawn_seed())
    if "\n" in fabric:
        (folder / "own.toml").write_text(fabric)
        fabric, settings = str(folder / "own.toml"), {"loss": 0.01} | settings
    job = Job(**{**DEFAULTS, "seed": seed, "file": str(some_file(folder / "file", size, seed)), "folder": str(folder),
                 "backend": "model", "fabric": fabric, **settings})
    print(f"run it again with WEFT_SEED={seed}")
    report = main_job.run_model(job)
    assert report == json.loads(job.report.read_text())
    return report


@pytest.mark.parametrize(("fabric", "settings", "flows"), [
    ("incast-3", {"hosts": 4, "qps": 2, "loss": 0.1}, 3), ("dumbbell", {"pmtu": 4096, "loss": 0.3}, 2),
    ("pair", {"rtt_us": 0.0, "loss": 0.2}, 1), ("leaf-spine-5", {"loss": 0.05}, 5)])
def test_each_file_arrives_whole(tmp_path, fabric, settings, flows):
    """The judges of two cards judge each of these, too."""
    report = run_on(tmp_path, fabric, **settings)
    assert_exact(report)
    assert len(report["flows"]) == flows and report["bytes"] == flows * 100_000
    assert all(flow["sha256"] == flow["sha256_sent"] and flow["goodput_gbps"] > 0 for flow in report["flows"])
    assert any("loss" in events for events in report["exercised"].values())
    lost = sum(port["lost"] + port["cut"] for port in report["fabric"]["ports"].values())
    assert lost == sum(report["fabric"]["destroyed"].values()) >= report["packets_lost"]


def test_an_incast_fills_the_queue_of_its_receiver(tmp_path):
    """Above 400 KiB each packet would be marked if its ECN field permitted it."""
    report = run_on(tmp_path, "incast-3", 300_000, loss=0.0)
    port = report["fabric"]["ports"]["s to b"]
    assert report["ok"] and report["packets_lost"] == 0
    assert 0.8 * 2 * 300_000 < port["peak_bytes"]["data"] < 3 * 330_000
    assert port["queued"]["data"] == report["packets_sent"] and port["unmarkable"] > 50 and port["marked"] == 0
    console = Console(file=io.StringIO(), width=80)
    assert print_report(console, tmp_path / "report.json", brief=True)
    assert "port s to b: " in console.file.getvalue() and "path a2 s b: " in console.file.getvalue()


def test_headers_of_trimmed_packets_are_truncated_frames_to_a_card(tmp_path):
    """The card counts each of them, and the receiver reports the losses as any other."""
    report = run_on(tmp_path, SHALLOW.replace("alpha = 128\n", "alpha = 1\ntrim = true\n"))
    assert_exact(report)
    trimmed = {host: report["fabric"]["ports"][f"s to {host}"]["trimmed"] for host in "xz"}
    assert trimmed == {host: report["counters"][host]["drop_truncated"] for host in "xz"}
    assert sum(trimmed.values()) == report["packets_lost"] > 10


def test_marks_prevent_losses_of_an_incast(tmp_path):
    """Above 100 KiB some packets are marked. Only probes cannot be; control frames have their own queue."""
    report = run_on(tmp_path, "incast-3", 1_000_000, loss=0.0, congestion="dcqcn", pmtu=4096)
    port, driver = report["fabric"]["ports"]["s to b"], report["driver"]
    assert report["ok"] and report["packets_lost"] == 0 and report["goodput_gbps"] > 40
    assert port["marked"] == report["counters"]["b"]["rx_marked"] > 20
    sent = report["packets_sent"]
    assert sent <= port["queued"]["data"] <= 1.3 * sent and port["queued"]["control"] == 0
    assert report["fabric"]["ports"]["b to s"]["queued"]["data"] == 0
    cnps = [driver[host]["cnps_received"] for host in ("a0", "a1", "a2")]
    assert sum(cnps) == driver["b"]["CNP"] and min(cnps) >= 1


def test_drops_of_a_full_buffer_are_recovered(tmp_path):
    """Flows in both directions, one of which begins later."""
    report = run_on(tmp_path, SHALLOW)
    assert_exact(report)
    dropped = sum(sum(port["dropped"].values()) for port in report["fabric"]["ports"].values())
    assert dropped == sum(report["fabric"]["destroyed"].values()) >= report["packets_lost"] > 10


def test_pauses_keep_packets_out_of_a_full_buffer(tmp_path):
    """The frames wait at the links of the senders."""
    report = run_on(tmp_path, PAUSING, 300_000)
    ports = report["fabric"]["ports"]
    assert report["ok"] and report["packets_lost"] == 0 and not report["fabric"]["destroyed"]
    assert all(ports[f"{host} to s"]["pauses"] > 0 for host in "xy")
    assert max(ports[f"{host} to s"]["peak_bytes"]["data"] for host in "xy") > 50_000


def test_packets_of_a_cut_path_are_sent_again_on_another(tmp_path):
    report = run_on(tmp_path, TWO_PATHS, 400_000)
    assert_exact(report)
    assert set(report["fabric"]["paths"]) >= {"x s p t y", "x s q t y"}
    assert sum(port["cut"] for port in report["fabric"]["ports"].values()) >= report["packets_lost"]


def test_a_cut_beyond_the_choice_of_the_path_needs_another_port(tmp_path):
    """The first switch does not see it. Twelve QPs use both paths; a peer that only answers keeps its path."""
    far = TWO_PATHS.replace("down_us = [[3, 20]]\n", "").replace("down_us = [[20, 40]]\n", "").replace(
        'a = "p"\nb = "t"\n', 'a = "p"\nb = "t"\ndown_us = [[10, 1000000]]\n')
    report = run_on(tmp_path, far, 1_200_000, qps=12)
    assert_exact(report)
    assert report["driver"]["x"]["path_changes"] >= 1 and report["fabric"]["switches"]["p"]["no_path"] > 50


@pytest.mark.parametrize("algorithm", ["none", "swift"])
def test_congestion_control_spares_a_shallow_buffer(tmp_path, algorithm):
    report = run_on(tmp_path, INCAST, 1_000_000, pmtu=4096, seed=1, congestion=algorithm)
    assert report["ok"] and report["spurious_retransmissions"] == 0
    assert report["packets_lost"] > 100 if algorithm == "none" else report["packets_lost"] == 0


def test_captures_have_the_names_of_the_hosts(tmp_path):
    report = run_on(tmp_path, "incast-2", 20_000, loss=0.1)
    counts = report["fabric"]["ports"]
    for host, (sent, arrived) in {"a0": ("a0 to s", "s to a0"), "b": ("b to s", "s to b")}.items():
        assert len(read_pcap(tmp_path / f"captures/{host}.sent.pcap")) == counts[sent]["sent"] > 0
        assert len(read_pcap(tmp_path / f"captures/{host}.arrived.pcap")) == (
            counts[arrived]["sent"] - counts[arrived]["lost"]) > 0


def test_same_seed_repeats_the_run(tmp_path):
    first, second = (run_on(tmp_path, "incast-2", 30_000, seed=7, loss=0.05) for _ in range(2))
    varies = {"wall_seconds", "cycles_per_second"}
    assert {k: v for k, v in first.items() if k not in varies} == {k: v for k, v in second.items() if k not in varies}


@pytest.mark.parametrize(("settings", "name", "words"), [
    ({"hosts": 3}, "hosts", "a line has two ends"), ({"fabric": "ring"}, "fabric", "is not a fabric"),
    ({"fabric": "incast-3", "hosts": 3}, "fabric", r"4 hosts \(a0, a1, a2, b\), and 3 are given"),
    ({"fabric": "incast-4"}, "fabric", "it has 5 hosts, and back end rtl at most 4"),
    ({"fabric": "incast-16", "backend": "model"}, "fabric", "it has 17 hosts, and back end model at most 16"),
    ({"congestion": "cubic"}, "congestion", "choose one of none, dcqcn, swift, rate-match"),
    ({"fabric": "pair", "dup": 0.1}, "dup", "a line between two hosts"),
    ({"fabric": "pair", "back_loss": 0.1}, "back_loss", "a line between two hosts"),
    ({"fabric": "pair", "pfc": 3}, "pfc", "a line between two hosts"),
    ({"fabric": "pair", "mac_clock": True}, "mac_clock", "a line between two hosts"),
    ({"fabric": "pair", "timeline": True}, "timeline", "a line between two hosts"),
    ({"fabric": "pair", "waves": True}, "waves", "a line between two hosts")])
def test_settings_that_a_fabric_does_not_have_are_refused(settings, name, words):
    with pytest.raises(BadSetting, match=words) as refused:
        JobSettings(**settings)
    assert refused.value.name == name


@pytest.mark.parametrize(("change", "name", "words"), [
    ({"loss": 0.2}, "loss", "has the losses"), ({"rtt_us": 3.0}, "rtt_us", "has the losses"),
    ({}, "fabric", "has no flow")])
def test_a_file_has_the_flows_losses_and_delays(tmp_path, change, name, words):
    path = tmp_path / "own.toml"
    path.write_text(TWO_PATHS if change else TWO_PATHS.partition("[[flow]]")[0])
    with pytest.raises(BadSetting, match=words) as refused:
        JobSettings(fabric=str(path), **change)
    assert refused.value.name == name


def test_three_senders_and_a_receiver_on_the_rtl(tmp_path):
    """The simulator has four cards; it is kept between runs. The switch has a small buffer and trims."""
    seed, file = drawn_seed(), tmp_path / "own.toml"
    file.write_text(INCAST.replace("buffer_kib = 512", "buffer_kib = 64, alpha = 128, trim = true").replace(
        '{a = "s", b = "b"}', '{a = "s", b = "b", loss = 0.1}'))
    job = Job(**{**DEFAULTS, "seed": seed, "folder": str(tmp_path), "hosts": 4, "fabric": str(file),
                 "file": str(some_file(tmp_path / "file", 60_000, seed))})
    card, sides = preset("test"), sides_of(job.network())
    simulate(verilog=two_cards_text(card, sides), top=top_of(sides), name=cards_name(card, sides), sim="verilator",
             optimize="run", cases=run_sim.CASES, seed=seed, env=job.environment())
    report = json.loads(job.report.read_text())
    assert_exact(report)
    port = report["fabric"]["ports"]["s to b"]
    assert port["peak_bytes"]["data"] > 60_000 and len(report["flows"]) == 3
    assert 10 < report["counters"]["b"]["drop_truncated"] <= port["trimmed"] < report["packets_lost"]
