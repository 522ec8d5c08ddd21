"""Tests of the conformance suite in C: cases and rules, verdicts, and the suite on the back ends."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weft.driver.ibverbs.build import missing
from weft.tb.cli import app
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.verify.conformance import c_suite, devices
from weft.tb.verify.conformance.c_suite import cases
from weft.tb.verify.conformance.devices import on_backend, peer_options

CASES_LEAST = 160
ON_RTL = (      # in the suite's order
    "fetch_and_add_wraps", "opcodes_of_completions", "empty_write_with_immediate", "datagram_has_a_header_in_front",
    "receives_are_flushed_in_order", "solicited_immediate_gives_an_event", "wrong_lkey_is_refused",
    "too_short_receive", "rtr_answers_and_reports")
WRONG = """
#include "suite.h"
CASE(right, "a rule") { }
CASE(wrong, "IBTA 1.2: a \\"rule\\"") { CHECK(1 == 2, "%d is not %d", 1, 2); }
CASE(absent, "man(3)") { LACKS(1, "the feature"); }
CASE(crashes, "a rule") { abort(); }
CASE(hangs, "a rule") { fputs("begun\\n", stderr); for (;;) {} }
CASE(leaves, "a rule") { exit(0); }
"""
# A device for the harness alone, which calls these functions before a case.
NO_DEVICES = """
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdlib.h>
static struct ibv_device device = { .name = "none" };
static struct ibv_device *devices[2];
static struct ibv_context context;
struct ibv_device **ibv_get_device_list(int *count) { devices[0] = &device; if (count) *count = 1; return devices; }
void ibv_free_device_list(struct ibv_device **list) { (void)list; }
const char *ibv_get_device_name(struct ibv_device *of) { return of->name; }
struct ibv_context *ibv_open_device(struct ibv_device *of) {
    device.transport_type = getenv("IWARP") ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
    context.device = of;
    return &context;
}
int ibv_close_device(struct ibv_context *of) { (void)of; return 0; }
#undef ibv_query_port
int ibv_query_port(struct ibv_context *of, uint8_t number, struct _compat_ibv_port_attr *port) {
    (void)of, (void)number;
    const char *state = getenv("PORT_STATE");
    ((struct ibv_port_attr *)port)->state = state ? atoi(state) : IBV_PORT_ACTIVE;
    return 0;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder in which the suite is compiled once."""
    if (sentence := missing()) and not tools_expected():
        pytest.skip(sentence)
    return tmp_path_factory.mktemp("suite")


def test_every_case_has_a_rule_and_the_program_lists_it(folder):
    listed = subprocess.run([c_suite.build(folder), "--list"], check=True, capture_output=True, text=True).stdout
    found = cases()
    assert sorted(line.split("\t") for line in listed.splitlines()) == sorted(list(case) for case in found)
    assert len(found) == len({case.name for case in found}) >= CASES_LEAST
    assert all("IBTA" in case.rule or "(3)" in case.rule for case in found)


def test_page_names_each_deviation_of_rxe():
    page = Path(__file__).parents[4].joinpath("docs/conformance.md").read_text(encoding="utf-8")
    [row] = re.findall(r"^\| rxe, .*$", page, re.MULTILINE)
    passed, unsupported, failed = map(int, re.findall(r"\| (\d+)(?= \|)", row))
    section = page.partition("### Deviations of rxe")[2].partition("\n## ")[0]
    named = [name for line in section.splitlines() for name in re.findall(r"`(\w+)`", line.split(" | ")[0])
             if line.startswith("| `")]
    assert len(named) == len(set(named) & {case.name for case in cases()}) == failed
    assert passed + unsupported + failed == len(cases())


@pytest.fixture(scope="module")
def program(folder):
    """Return a program of the suite's command with other cases and without a real device."""
    (folder / "wrong.c").write_text(WRONG)
    (folder / "devices.c").write_text(NO_DEVICES)
    subprocess.run([c_suite.compiler(), *c_suite.OPTIONS, f"-I{c_suite.FOLDER}", "-o", folder / "program",
                    folder / "wrong.c", folder / "devices.c", c_suite.FOLDER / "suite.c", "-libverbs"], check=True)
    return folder / "program"


def test_verdicts_are_distinguished(program, tmp_path):
    found = tmp_path / "cases.json"
    done = subprocess.run([program, "--limit", "1", "--json", found], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "PASS         right",
        'FAIL         wrong: 1 is not 2  [IBTA 1.2: a "rule"]',
        "UNSUPPORTED  absent: the feature  [man(3)]",
        "FAIL         crashes: signal 6 ends it  [a rule]",
        "FAIL         hangs: it has not ended after 1 s  [a rule]",
        "FAIL         leaves: it ends without a verdict  [a rule]",
        "1 passed, 4 failed, 1 unsupported"]
    assert done.returncode == 1
    rows = json.loads(found.read_text())
    assert [row["status"] for row in rows] == ["PASS", "FAIL", "UNSUPPORTED", "FAIL", "FAIL", "FAIL"]
    assert rows[1]["rule"] == 'IBTA 1.2: a "rule"' and rows[1]["subject"] == "wrong" and rows[1]["seconds"] >= 0


@pytest.mark.parametrize(("words", "environment", "status", "sentence"), [
    ("--only right", {}, 0, ""), ("--only nothing", {}, 2, "no case has a name"),
    ("--device other", {}, 2, "no device of that name"), ("--peer other", {}, 2, "--peer cannot be opened"),
    ("--unknown x", {}, 2, "unknown"), ("--only", {}, 2, "no value"),
    ("--limit 0", {}, 2, "--limit is"), ("--limit 1x", {}, 2, "--limit is"), ("--gid -1", {}, 2, "--gid is"),
    ("--only right", {"PORT_STATE": "1"}, 2, "not active"), ("--only right", {"IWARP": "1"}, 2, "rdma_cm"),
    ("--only right --json /proc/none/x", {}, 2, "cannot be written")])
def test_exit_status_and_sentence(program, words, environment, status, sentence):
    done = subprocess.run([program, *words.split()], capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == status and sentence in done.stderr


def test_a_case_ends_with_the_suite(program):
    with subprocess.Popen([program, "--only", "hangs", "--limit", "1000"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as suite:
        assert suite.stderr.readline() == "begun\n"
        suite.kill()
        suite.communicate(timeout=60)      # the case holds the pipe until it ends


def passes(backend, folder, only=()):
    """Run the suite, or the ``only`` cases, on a back end; return the lines that it reports before the last."""
    printed = []
    status, result = on_backend(folder, backend, only, printed.append)
    count = len(only) or len(cases())
    assert printed[-1] == f"{backend}: {count} passed, 0 failed, 0 unsupported" and status == 0, "\n".join(printed)
    assert len(result["cases"]) == count and result["backend"] == backend
    assert all(case["seconds"] >= 0 for case in result["cases"])
    return printed[:-1]


@pytest.mark.parametrize("backend", ["direct", "functional"])
def test_every_case_passes(backend, folder):
    passes(backend, folder)


def test_every_case_passes_on_the_timing_model(folder):
    passes("model", folder)


def test_some_cases_pass_on_every_back_end(folder, tmp_path, capfd):
    """Run a short case of each kind of operation and of fault; without ``--only`` the RTL takes minutes for all."""
    words = [word for name in ON_RTL for word in ("--only", name)]
    done = CliRunner().invoke(app, ["conformance", *words, "--json", str(tmp_path / "found.json")])
    assert done.exit_code == 0, f"{done.output}{capfd.readouterr()}"
    found = json.loads((tmp_path / "found.json").read_text())
    assert {result["backend"]: [case["status"] for case in result["cases"]] for result in found} == {
        backend: ["PASS"] * len(ON_RTL) for backend in devices.LIMIT_S}
    of_rtl = [line.split()[1:3] for line in done.stdout.splitlines() if line.startswith("rtl: ")]
    assert of_rtl == [*(["PASS", f"{name},"] for name in ON_RTL), [str(len(ON_RTL)), "passed,"]]


def test_lines_of_cases_are_reported_with_their_times():
    lines = ["PASS         one\n", "FAIL         two: 1 is not 2  [a rule]\n", "1 passed, 1 failed, 0 unsupported\n"]
    failed = r"FAIL         two: 1 is not 2  \[a rule\], \d+\.\d s\n\w+: 1 passed, 1 failed, 0 unsupported"
    passed = r"rtl: PASS         one, \d+\.\d s"
    for backend, expected in (("direct", f"direct: {failed}"), ("rtl", f"{passed}\nrtl: {failed}")):
        reported = []
        assert len(devices._followed(lines, backend, reported.append)) == 2
        assert re.fullmatch(expected, "\n".join(reported)), reported


def test_back_ends_are_those_that_need_no_hardware(monkeypatch, folder, tmp_path):
    monkeypatch.setattr(devices, "on_backend", lambda _folder, backend, *_: (0, {"backend": backend}))
    devices.on_backends(folder, (), (), tmp_path / "found.json")
    results = json.loads((tmp_path / "found.json").read_text())
    assert [result["backend"] for result in results] == ["direct", "functional", "model", "rtl"]
    assert set(devices.LIMIT_S) == {result["backend"] for result in results}
    refused = CliRunner().invoke(app, ["conformance", "--backend", "pci"])
    assert refused.exit_code == 2


def test_results_are_saved_after_each_back_end(monkeypatch, folder, tmp_path):
    """The first back end ends with a failed case, the second in a crash: the results of the first stay."""
    def run(_folder, backend, *_):
        if backend == "functional":
            raise devices.SuiteFailed("it crashed")
        return 1, {"backend": backend}

    monkeypatch.setattr(devices, "on_backend", run)
    file = tmp_path / "found.json"
    result = CliRunner().invoke(app, ["conformance", "--json", str(file)])
    assert result.exit_code == 1 and "it crashed" in result.output
    assert json.loads(file.read_text()) == [{"backend": "direct"}]


def test_a_crash_of_the_suite_is_no_success(monkeypatch, tmp_path):
    crash = tmp_path / "crash"
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)
    monkeypatch.setattr(devices, "build", lambda _folder: crash)
    with pytest.raises(devices.SuiteFailed, match="status -11"):
        devices.on_device(tmp_path, "weft0", "", ())


def test_peers_are_devices_or_hosts(tmp_path, monkeypatch):
    monkeypatch.delenv("WEFT_SOCKET", raising=False)
    assert peer_options("b") == ["--peer", "b"]
    (tmp_path / "b.sock").touch()
    monkeypatch.setenv("WEFT_SOCKET", str(tmp_path / "a.sock"))
    assert peer_options("b") == ["--peer-socket", str(tmp_path / "b.sock")]
    assert peer_options("mlx5_0") == ["--peer", "mlx5_0"]
