"""Every place where a signal changes its clock is known, has no logic in it, and has its constraints."""

import pytest

from weft.hdl.board.crossings import CROSSINGS, Kind
from weft.tb.board.netlist import Netlist, netlist_of_board

CLOCKS = {"sync": "clk", "mac": "mac_clk", "init": "init_clk"}


def known(found, crossing):
    """Whether ``crossing`` is what was ``found``. A reset goes to all registers of its chain."""
    sinks = (crossing.sink, crossing.sink.removesuffix("0") + "1") if crossing.kind is Kind.RESET else (crossing.sink,)
    return (crossing.source in found.source and found.sink & set(sinks)
            and (found.write, found.read) == (crossing.write, crossing.read))


@pytest.fixture(scope="module")
def found():
    pytest.importorskip("pyosys")
    return list(Netlist(*netlist_of_board(), CLOCKS).crossings())


def test_all_crossings_are_known(found):
    assert found, "nothing crosses?"
    strange = [crossing for crossing in found if not any(known(crossing, one) for one in CROSSINGS)]
    assert not strange, strange[:5]


def test_all_known_crossings_are_there(found):
    assert not [one for one in CROSSINGS if not any(known(crossing, one) for crossing in found)]


def test_no_logic_crosses(found):
    """A synchroniser sees a register, or a port of a block. A reset within one clock may be of two."""
    logic = [crossing for crossing in found if not crossing.direct and not (
        crossing.reset and crossing.write == crossing.read)]
    assert not logic, logic[:5]


def test_logic_between_clocks_would_be_found():
    """A netlist of two registers and a gate, each at another clock."""
    cells = {
        "a": {"type": "$dff", "connections": {"CLK": [2], "D": ["0"], "Q": [10]}},
        "b": {"type": "$dff", "connections": {"CLK": [3], "D": [12], "Q": [11]}},
        "not": {"type": "$not", "connections": {"A": [10], "Y": [12]},
                "port_directions": {"A": "input", "Y": "output"}},
    }
    nets = {"clk": {"bits": [2]}, "mac_clk": {"bits": [3]}, "x.from": {"bits": [10]}, "x.to": {"bits": [11]}}
    ports = {"clk": {"direction": "input", "bits": [2]}, "mac_clk": {"direction": "input", "bits": [3]}}
    clocks = {"sync": "clk", "mac": "mac_clk"}
    (one,) = Netlist(cells, nets, ports, clocks).crossings()
    assert (one.source, one.sink, one.write, one.read, one.direct) == ({"x/from"}, {"x/to"}, "sync", "mac", False)
    cells["b"]["connections"]["D"] = [10]
    assert [each.direct for each in Netlist(cells, nets, ports, clocks).crossings()] == [True]


@pytest.mark.parametrize("crossing", CROSSINGS, ids=lambda crossing: f"{crossing.source}-{crossing.sink}")
def test_each_has_its_constraints(crossing):
    lines = crossing.constraints()
    text = "\n".join(lines)
    assert ("set_bus_skew" in text) == (crossing.kind in (Kind.GRAY, Kind.HELD))
    assert ("ASYNC_REG" in text) == (crossing.kind not in (Kind.HELD, Kind.STATIC))
    assert ("set_max_delay -datapath_only" in text) != ("set_false_path" in text)
