"""Tests of the file for an integrator: it names its origin and lists every port once, in order, with its purpose."""

import re

import pytest

from weft.hdl.card import card_signature
from weft.hdl.contract.params import preset
from weft.hdl.verilog.ports import ABOUT, annotated, card_ports, instance_text

HEADING = ["Weft", "made by: weft verilog"]
REST = "  wire x;\nendmodule\nmodule other(a);\nendmodule\n"
CARDS = {"test": preset("test"), "full": preset("full").with_(mac_clock=True)}
PRESETS = pytest.mark.parametrize("params", CARDS.values(), ids=CARDS)


def names(params):
    signature = card_signature(mac_clock=params.mac_clock)
    found = ["__".join(path) for path, _, _ in signature.flatten(signature.create())]
    return found if params.mac_clock else ["clk", "rst", *found]


def text_of(ports):
    """Return Verilog of a card with these ports, listed backwards, as a tool may do."""
    return f"/* tool */\nmodule weft_card({', '.join(reversed(ports))});\n{REST}"


@PRESETS
def test_ports_are_listed_in_order_with_their_purpose(params):
    text = annotated(text_of(names(params)), params, HEADING)
    assert text.startswith("// Weft\n// made by: weft verilog\n/* tool */\nmodule weft_card(\n")
    listed = text.partition("weft_card(")[2].partition("\n);")[0]
    assert re.findall(r"\w+", re.sub("//.*", "", listed)) == names(params)
    remarks = re.findall("// (.*)", listed)
    assert len(remarks) == len(card_ports(text_of(names(params)), params)) and set(remarks) <= set(ABOUT.values())
    assert text.endswith(f"\n);\n{REST}")


def test_names_of_enum_values_are_left_out():
    text = text_of(names(CARDS["test"])).replace(
        "  wire x;\n", '  (* enum_base_type = "Kind" *)\n  (* enum_value_01 = "DATA" *)\n  (* keep = 1 *)\n  wire x;\n')
    assert annotated(text, CARDS["test"], HEADING).endswith(
        "  (* keep = 1 *)\n  wire x;\nendmodule\nmodule other(a);\nendmodule\n")


@PRESETS
def test_the_template_connects_every_port(params):
    text = instance_text(text_of(names(params)), params, HEADING)
    found = re.findall(r"^    \.(\w+)\((\w+)\)(,?) *// (input|output)(?: \[(\d+):0\])?$", text, re.MULTILINE)
    assert [port for port, *_ in found] == [name for _, name, *_ in found] == names(params)
    assert [bool(comma) for _, _, comma, *_ in found] == [True] * (len(found) - 1) + [False]
    assert {port: (direction, width) for port, _, _, direction, width in found}["m_axis_rq__tdata"] == ("output", "511")


def test_constant_makes_no_port():
    params = preset("test")
    without = [name for name in names(params) if name != "s_axis_rx__tready"]
    assert "s_axis_rx__tready" not in instance_text(text_of(without), params, HEADING)


def test_unknown_port_is_rejected():
    with pytest.raises(ValueError, match="signature"):
        annotated(text_of([*names(preset("test")), "more"]), preset("test"), HEADING)
