"""Tests of the main job with timed cards: the same job as on the gateware, with the same scoreboards."""

import io
import json
import re

import pytest
from rich.console import Console

from weft.tb.app.job import main_job
from weft.tb.app.job.job import Job
from weft.tb.app.job.report import print_report
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.link.pcap import read_pcap
from weft.tb.test.app.job.test_entry import ended, line, some_file, weft
from weft.tb.test.app.job.test_main_job import DEFAULTS, assert_exact
from weft.tb.test.decoder import decode

BYTES = 200_000


def run_model(folder, size=BYTES, **settings):
    """Run the job with timed cards; return its report."""
    seed = settings.get("seed", drawn_seed())
    job = Job(**{**DEFAULTS, "sim": "verilator", "seed": seed, "file": str(some_file(folder / "file", size, seed)),
                 "folder": str(folder), "backend": "model", **settings})
    print(f"run it again with WEFT_SEED={seed}")
    report = main_job.run_model(job)
    assert report == json.loads(job.report.read_text())
    return report


@pytest.mark.parametrize("settings", [
    {}, {"loss": 0.05, "qps": 8, "rtt_us": 100.0}, {"pmtu": 4096, "preset": "full"}, {"pmtu": 256, "preset": "basic"},
    {"loss": 0.05, "reorder": 0.01, "dup": 0.01, "corrupt": 0.005, "qps": 4,
     "back_loss": 0.05, "back_reorder": 0.01, "back_dup": 0.01, "back_corrupt": 0.005},
    {"loss": 0.2, "back_loss": 0.2, "rtt_us": 6.0, "qps": 2}], ids=str)
def test_file_is_transferred(tmp_path, settings):
    """The scoreboards of the gateware's bench check packets and reports."""
    report = run_model(tmp_path, **settings)
    assert report["ok"], report["failures"]
    assert report["sha256_sent"] == report["sha256_received"] and report["blocks_missing"] == 0
    assert report["packets_retransmitted"] == report["packets_lost"]
    assert report["nodes_linked"] == report["nodes_retired"]
    counters = report["counters"]["b"]
    looked_up = report["cache_hits"] + report["cache_misses"] + counters["rx_unmatched"]
    not_looked_up = sum(counters[f"drop_{why}"] for why in ("bad_icrc", "stale_psn", "stale_rsn"))  # upper bound
    assert looked_up <= report["link"]["a_to_b"]["delivered"].get("retx", 0) <= looked_up + not_looked_up


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025])
def test_small_files(tmp_path, size):
    report = run_model(tmp_path, size, loss=0.0, rtt_us=2.0)
    assert report["ok"] and report["bytes"] == size
    assert report["packets_sent"] == {0: 1, 1: 1, 1023: 1, 1024: 1, 1025: 3}[size]


@pytest.mark.parametrize(("rtt_us", "loss"), [(0.1, 0.3), (1e3, 0.3), (3e4, 0.01), (3e4, 0.3), (2e5, 0.3), (1e6, 0.01)])
def test_file_is_transferred_over_a_long_path(tmp_path, rtt_us, loss):
    """The job continues as long as the driver does: at 30 % loss some packets are lost several times in a row."""
    report = run_model(tmp_path, loss=loss, back_loss=loss, rtt_us=rtt_us)
    assert report["ok"], report["failures"]
    assert report["packets_retransmitted"] == report["packets_lost"] and report["spurious_retransmissions"] == 0


def test_many_losses_of_one_packet_do_not_end_the_job(tmp_path):
    report = run_model(tmp_path, 20_000, loss=0.0159, reorder=0.0136, corrupt=0.2440, back_dup=0.3746,
                       back_corrupt=0.0494, rtt_us=1430.666, qps=11, pmtu=4096)
    assert report["ok"], report["failures"]


@pytest.mark.parametrize(("direction", "problem"),
                         [("loss", "the bytes received differ"), ("back_loss", "RETRY_EXC_ERR")])
def test_failed_run_has_no_figures_of_a_complete_transfer(tmp_path, direction, problem):
    """One direction loses everything: the sender's requests end in an error."""
    report = run_model(tmp_path, 2560, rtt_us=1.0, **{"loss": 0.0, direction: 1.0})
    assert not report["ok"] and any(problem in failure for failure in report["failures"])
    assert report["goodput_gbps"] is None and report["spurious_retransmissions"] is None
    assert (report["sha256_sent"] == report["sha256_received"]) == (direction == "back_loss")
    assert report["blocks_missing"] == 0
    console = Console(file=io.StringIO(), width=80)
    assert not print_report(console, tmp_path / "report.json")
    assert re.search(r"^goodput gbps +–$", console.file.getvalue(), re.MULTILINE)


def test_captures_are_the_frames_of_the_link(tmp_path):
    report = run_model(tmp_path, 50_000, loss=0.05)
    for direction, counters in report["link"].items():
        for subject, outcome in (("sent", "sent"), ("arrived", "delivered")):
            frames = read_pcap(tmp_path / f"captures/{direction}.{subject}.pcap")
            assert len(frames) == counters[outcome]["all"] > 0
            times = [time_ns for time_ns, _ in frames]
            assert times == sorted(times)
            assert all(decode(frame) for _, frame in frames)


def test_same_seed_repeats_the_run(tmp_path):
    first, second = (run_model(tmp_path, 50_000, seed=7, loss=0.05, qps=2) for _ in range(2))
    assert_exact(first)
    varies = {"wall_seconds", "cycles_per_second"}
    assert {k: v for k, v in first.items() if k not in varies} == {k: v for k, v in second.items() if k not in varies}


def test_command_line_prints_a_command_that_repeats_the_run(tmp_path):
    file = some_file(tmp_path / "file", 20_000)
    build = tmp_path / "build"      # separate, because other runs publish at the same time
    words = ["sim", "--file", str(file), "--backend", "model", "--rtt-us", "5", "-v"]
    with weft(*words, WEFT_BUILD=str(build)) as process:
        status, output, errors = ended(process)
    assert status == 0, output + errors
    report = json.loads((build / "reports/sim.json").read_text())
    assert report["ok"] and "PASSED" in output and (build / "captures/a_to_b.sent.pcap").exists()
    assert line(output, "command") == report["command"] and "--backend model" in report["command"]
    assert "--sim" not in report["command"]


def test_the_model_has_no_waves():
    with weft("sim", "--backend", "model", "--waves") as process:
        status, output, errors = ended(process)
    assert (status, errors) == (
        2, "weft: --waves is not possible with back end model, which has no signals; use --backend rtl\n")
