"""Tests that every clock-domain crossing is known, has no logic in it, and has its constraints."""

import re

import pytest

from weft.hdl.board.crossings import BOARD_CROSSINGS, CROSSINGS
from weft.hdl.board.u50 import card_block
from weft.hdl.mac.crossings import CARD_CROSSINGS, Kind
from weft.tb.test.hdl.board.netlist import Netlist, netlist_of_board, netlist_of_card

CLOCKS = {"sync": "clk", "mac": "mac_clk"}
DESIGNS = {"board": (netlist_of_board, BOARD_CROSSINGS, CLOCKS | {"init": "init_clk"}),
           "card": (netlist_of_card, CARD_CROSSINGS, CLOCKS, card_block().clock_of)}


def known(found, crossing):
    """Return True if ``crossing`` describes ``found``. A reset goes to all registers of its chain."""
    sinks = (crossing.sink, crossing.sink.removesuffix("0") + "1") if crossing.kind is Kind.RESET else (crossing.sink,)
    return (crossing.source in found.source and found.sink & set(sinks)
            and (found.write, found.read) == (crossing.write, crossing.read))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name == "card" else name
                                  for name in DESIGNS])
def test_registers_of_synchronisers_have_their_attribute(name):
    """Synthesis reads the attribute in the Verilog; constraints with names of registers come after it."""
    pytest.importorskip("pyosys")
    netlist, crossings, *_ = DESIGNS[name]
    _, nets, _ = netlist()
    marked = {net.replace(".", "/"): net_found["bits"] for net, net_found in nets.items()
              if "ASYNC_REG" in net_found["attributes"]}
    wanted = {one.sink for one in crossings if one.kind not in (Kind.HELD, Kind.STATIC)}
    assert wanted | {sink.removesuffix("0") + "1" for sink in wanted} <= set(marked)
    stages = {bit for net, bits in marked.items() if re.search(r"/stage\d+$", net) for bit in bits}
    assert {bit for bits in marked.values() for bit in bits} <= stages      # further names of the same registers


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.slow) if name == "card" else name
                                        for name in DESIGNS])
def design(request):
    """Return ``(crossings found in the netlist, known crossings)`` of the board or of the card."""
    pytest.importorskip("pyosys")
    netlist, crossings, *more = DESIGNS[request.param]
    return list(Netlist(*netlist(), *more).crossings()), crossings


def test_all_crossings_are_known(design):
    found, crossings = design
    assert found, "nothing crosses?"
    strange = [crossing for crossing in found if not any(known(crossing, one) for one in crossings)]
    assert not strange, strange[:5]


def test_all_known_crossings_exist(design):
    found, crossings = design
    assert not [one for one in crossings if not any(known(crossing, one) for crossing in found)]


def test_no_logic_crosses(design):
    """A synchroniser is driven by a register or by a port of a block.

    A reset that stays in one clock domain may combine two sources.
    """
    found, _ = design
    logic = [crossing for crossing in found if not crossing.direct and not (
        crossing.reset and crossing.write == crossing.read)]
    assert not logic, logic[:5]


def test_logic_between_clocks_is_detected():
    """The netlist has two registers with different clocks, and a gate between them."""
    cells = {
        "a": {"type": "$dff", "connections": {"CLK": [2], "D": ["0"], "Q": [10]}},
        "b": {"type": "$dff", "connections": {"CLK": [3], "D": [12], "Q": [11]}},
        "not": {"type": "$not", "connections": {"A": [10], "Y": [12]},
                "port_directions": {"A": "input", "Y": "output"}},
    }
    nets = {"clk": {"bits": [2]}, "mac_clk": {"bits": [3]}, "x.from": {"bits": [10]}, "x.to": {"bits": [11]}}
    ports = {"clk": {"direction": "input", "bits": [2]}, "mac_clk": {"direction": "input", "bits": [3]}}
    (one,) = Netlist(cells, nets, ports, CLOCKS).crossings()
    assert (one.source, one.sink, one.write, one.read, one.direct) == ({"x/from"}, {"x/to"}, "sync", "mac", False)
    cells["b"]["connections"]["D"] = [10]
    assert [each.direct for each in Netlist(cells, nets, ports, CLOCKS).crossings()] == [True]


def test_output_of_another_clock_is_detected():
    """The netlist has a memory read without a clock; its address is of another clock, and its output drives a port."""
    memory = {"type": "$mem_v2", "parameters": {
        "WR_PORTS": "1", "RD_PORTS": "1", "ABITS": "1", "WIDTH": "1", "RD_CLK_ENABLE": "0"},
        "connections": {"WR_CLK": [2], "WR_ADDR": [10], "WR_DATA": [10], "WR_EN": [10], "RD_CLK": ["0"], "RD_EN": ["1"],
                        "RD_ADDR": [11], "RD_DATA": [12]}}
    cells = {"m": memory,
             "a": {"type": "$dff", "connections": {"CLK": [2], "D": ["0"], "Q": [10]}},
             "b": {"type": "$dff", "connections": {"CLK": [3], "D": ["0"], "Q": [11]}}}
    nets = {"clk": {"bits": [2]}, "mac_clk": {"bits": [3]}, "a.q": {"bits": [10]}, "b.q": {"bits": [11]}}
    ports = {"o": {"direction": "output", "bits": [12]}}
    for domain, sources in (("sync", {"b/q"}), ("mac", {"m words"})):
        (one,) = Netlist(cells, nets, ports, CLOCKS, lambda _port, domain=domain: domain).crossings()
        assert (one.source, one.sink, one.read, one.direct) == (sources, {"o"}, domain, False)
    assert not list(Netlist(cells, nets, ports, CLOCKS).crossings())


@pytest.mark.parametrize("crossing", CROSSINGS, ids=lambda crossing: f"{crossing.source}-{crossing.sink}")
def test_each_crossing_has_its_constraints(crossing):
    lines = crossing.constraints()
    text = "\n".join(lines)
    assert ("set_bus_skew" in text) == (crossing.kind in (Kind.GRAY, Kind.HELD))
    assert ("ASYNC_REG" in text) == (crossing.kind not in (Kind.HELD, Kind.STATIC))
    assert ("set_max_delay -datapath_only" in text) != ("set_false_path" in text)
