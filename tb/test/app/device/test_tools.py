"""Tests of ``weft devinfo`` and ``weft counters`` against the values of the card and its driver."""

import json
import re

import pytest
from typer.testing import CliRunner

from weft.driver.verbs.linux_counters import CARD, DRIVER
from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.model.functional.card import FunctionalCard
from weft.model.loop import EventLoop
from weft.tb.app.device.registers import registers_markdown
from weft.tb.cli import app
from weft.tb.sim.flow.seed import drawn_seed


def weft(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("card", ["test", "basic"])
def test_devinfo_prints_the_fields_of_ibv_devinfo(card):
    short, long = weft("devinfo", "--preset", card), weft("devinfo", "-v", "--preset", card)
    assert short.exit_code == long.exit_code == 0
    found = dict(re.findall(r"^\s*([\w\[\] ]+):\s+(.*)$", long.stdout, re.MULTILINE))
    assert set(short.stdout.splitlines()) < set(long.stdout.splitlines())
    assert found["hca_id"] == "weft0" and found["state"] == "PORT_ACTIVE (4)"
    assert found["fw_ver"] == ".".join(map(str, abi.VERSION)) and found["vendor_id"] == f"0x{abi.PCI_VENDOR_ID:x}"
    assert int(found["max_mr_size"], 16) == preset(card).ptes * abi.PAGE_2M
    assert (int(found["max_mr"]), int(found["max_qp"])) == (preset(card).mrs, preset(card).qps - 2)
    assert found["max_mtu"] == "4096 (5)" and found["active_width"] == "4X (2)" and found["phys_state"] == "LINK_UP (5)"
    assert found["GID[  0]"].endswith("ffff:0a00:0001, RoCE v2") and found["link_layer"] == "Ethernet"


def test_the_register_map_shows_the_constants_that_a_card_has():
    card = FunctionalCard(None, EventLoop(), None, None)
    for name in ("magic", "version", "status"):
        register = abi.REGISTER[name]
        assert register.reset == card.read(register.offset) > 0
        assert f"| `{name}` | 32 | read only | {register.reset:#x} |" in registers_markdown()
    fixed = [register for register in abi.REGISTERS if not register.name.startswith("cap_")]
    assert {r.name: card.read(r.offset) for r in fixed} == {r.name: r.reset for r in fixed}


def views(text):
    """Return the output of ``weft counters`` for each card: as ``rdma statistic`` and as ``ethtool -S``."""
    found = []
    for part in text.split("link ")[1:]:
        words = part.splitlines()[0].split()
        rdma = dict(zip(words[1::2], map(int, words[2::2]), strict=True))
        found.append((words[0], rdma, {name: int(n) for name, n in re.findall(r"^ {5}(\w+): +(\d+)$", part, re.M)}))
    return found


def test_counters_of_a_short_run():
    seed = drawn_seed()
    print(f"seed {seed}")
    result = weft("counters", "--messages", 40, "--loss", 0.1, "--rtt-us", 2, "--seed", seed)
    assert result.exit_code == 0, result.output
    cards = views(result.stdout)
    assert [device for device, *_ in cards] == ["weft0/1", "weft1/1"]
    for _, rdma, card in cards:
        assert set(card) == {name for name, _ in abi.COUNTERS}
        assert set(rdma) == {*CARD, *DRIVER}
        assert {name: rdma[name] for name in CARD} == {
            name: sum(card[source] for source in sources) for name, sources in CARD.items()}
        assert rdma["tx_pkts"] > 40 and rdma["retrans_pkts"] and rdma["out_of_sequence"]
    (_, a, _), (_, b, _) = cards
    assert a["rx_pkts"] <= b["tx_pkts"] and b["rx_pkts"] <= a["tx_pkts"]


def test_counters_of_a_report(tmp_path):
    counted = {side: {name: n + 1000 * (side == "b") for n, (name, _) in enumerate(abi.COUNTERS)} for side in "ab"}
    report = tmp_path / "sim.json"
    for driver in ({}, {"driver": {"a": {"path_changes": 7}, "b": {"path_changes": 8}}}):
        report.write_text(json.dumps({"counters": counted} | driver))
        result = weft("counters", "--report", report)
        assert result.exit_code == 0
        assert [card for _, _, card in views(result.stdout)] == list(counted.values())
        assert [rdma["path_changes"] for _, rdma, _ in views(result.stdout)] == ([7, 8] if driver else [0, 0])


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"counters": {"a": {}}}', '{"counters": 3}',
                                  '{"counters": {}, "driver": 3}'])
def test_other_file_is_rejected_as_a_report(tmp_path, text):
    report = tmp_path / "sim.json"
    report.write_text(text)
    result = weft("counters", "--report", report)
    assert result.exit_code == 2 and "not a report" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [
    ["devinfo", "--backend", "none"], ["devinfo", "--preset", "none"], ["counters", "--messages", "0"],
    ["counters", "--loss", "2"], ["counters", "--report", "/nonexistent"], ["counters", "--backend", "none"]],
    ids=" ".join)
def test_bad_usage_prints_a_sentence_and_exits_with_2(words):
    result = weft(*words)
    assert result.exit_code == 2 and result.stderr.startswith("weft: ") and result.stderr.count("\n") == 1
