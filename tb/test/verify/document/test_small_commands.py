"""Tests that commands of the documents run, each in a small form and with its results in a folder of the test."""

import json
import os
import shlex
import subprocess
import sys

import pytest

from weft.driver.ibverbs.build import missing
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.test.system import need
from weft.tb.test.verify.document.commands import DOCUMENTS, FENCE, ROOT
from weft.tb.test.verify.document.test_commands import link_kept
from weft.tb.verify.programs.session import serving

LIMIT_S = 600
# Commands, and words of their output.
FORMS = {
    "python -m weft.tb.test.driver.channel states --most 1": "none of them bad",
    "python -m weft.tb.test.driver.serve.datagram_oracle 10 1": "",
    "python -m weft.tb.test.driver.serve.oracle 10 1": "",
    "python -m weft.tb.verify.linux.hostile --messages 50 --attackers 1 --seed 1": "again: python -m",
    "python -m weft.tb.verify.programs.hostile 50 1": "",
    "python -m weft.tb.verify.programs.run --brief --only ibv_devices --backend direct": "passed",
    "python -m weft.tb.verify.prose docs/versions.md": "",
    "weft bench --list": "line-rate",
    "weft conformance --backend direct --only psn --json found.json": "0 failed",
    "weft conformance --list": "psn",
    "weft sim --backend model --fabric shallow.toml --pmtu 4096 --file file --congestion swift": "PASSED",
    "weft sim --backend model --timeline --file file": "PASSED",
    "weft verilog --preset test --no-lint --output card.v": "card.v: module weft_card",
    "weft verilog --preset test --no-lint --board u50 --output u50/card.v": "build.tcl",
    "weft sweep --of fabric fabric=own.toml algorithm=swift,rate-match warmup_rtts=5 measured_rtts=5": "goodput",
    "weft sweep --plan long_paths rtt_us=100 warmup_rtts=2 measured_rtts=2 loss=0 flows=2": "goodput",
    "weft sweep --plan network warmup_rtts=5 measured_rtts=5 flows=2": "goodput",
}
SHALLOW, FABRIC = [block for language, block in FENCE.findall(DOCUMENTS["docs/congestion.md"]) if language == "toml"]


@pytest.fixture
def build(tmp_path):
    """Return a folder for results, with those that this checkout already has."""
    link_kept(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", FORMS)
def test_small_form(command, build):
    if "ibv_devices" in command:
        need("ibv_devices")
    (build / "file").write_bytes(bytes(5000))
    (build / "own.toml").write_text(FABRIC)
    (build / "shallow.toml").write_text(SHALLOW)
    words = [sys.executable, *(("-m", "weft.tb.cli") if command.startswith("weft ") else ()), *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=ROOT if "prose" in command else build, env=os.environ | {"WEFT_BUILD": str(build)},
                          capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0 and FORMS[command] in done.stdout, f"{done.stdout}\n{done.stderr}"


def test_conformance_of_a_device(build):
    if (sentence := missing()) and not tools_expected():
        pytest.skip(sentence)
    found = build / "found.json"
    with serving("--backend", "direct") as session:
        ended = session.run("a", sys.executable, "-m", "weft.tb.cli", "conformance", "--device", "weft0", "--peer", "b",
                            "--only", "psn", "--json", str(found), limit_s=LIMIT_S)
    assert ended.status == 0, ended.output
    [result] = json.loads(found.read_text())
    assert result["device"] == "weft0"
