"""Tests of the estimate of path delays, with netlists small enough to add up by hand."""

import pytest

from weft.tb.sim.synth.path import Flat, linked, worst_paths


def cell(kind, **pins):
    """Return a cell; pins that drive a net are written as lists of a list: ``O=[[5]]``."""
    return (kind, {pin: bits[0] if isinstance(bits[0], list) else bits for pin, bits in pins.items()},
            [pin for pin, bits in pins.items() if isinstance(bits[0], list)])


def worst_path(cells, names):
    return worst_paths(Flat(cells, names, inputs={2}, outputs={90}))[0]


def test_luts_and_multiplexers_add_up():
    path = worst_path([
        cell("FDRE", C=[1], D=[2], Q=[[10]]), cell("LUT2", I0=[10], I1=[2], O=[[11]]),
        cell("MUXF7", I0=[11], I1=[2], S=[2], O=[[12]]), cell("LUT1", I0=[12], O=[[13]]),
        cell("FDRE", C=[1], D=[13], CE=["1"], Q=[[14]])], {10: "a.from", 12: "between", 14: "a.to"})
    assert (path.ns, path.levels, path.start, path.end) == (0.72, 2, "a.from", "a.to")
    assert path.via == (("a.from", 0.0), ("between", 0.42))


def test_carry_counts_by_bits():
    """From bit 1 of a chain to its end, and on to bit 2 of the next chain: three bits each."""
    chain = {"DI": ["0"] * 4, "CYINIT": ["0"]}
    path = worst_path([
        cell("CARRY4", CI=["0"], S=["0", 2, "0", "0"], O=[[20, 21, 22, 23]], CO=[[24, 25, 26, 27]], **chain),
        cell("CARRY4", CI=[27], S=["0"] * 4, O=[[30, 31, 90, 33]], CO=[[34, 35, 36, 37]], **chain)], {90: "o"})
    assert (path.ns, path.levels) == (pytest.approx(0.02 * (3 + 3)), 0)


def test_memories():
    """A block RAM adds its delay to the start of a path; a read of distributed RAM is a LUT, a write ends a path."""
    path = worst_path([
        cell("RAMB36E2", ADDRARDADDR=[2], CLKARDCLK=[1], DOUTADOUT=[[40]]),
        cell("RAM64M8", ADDRA=[40], DIA=[2], WCLK=[1], DOA=[[41]]), cell("LUT1", I0=[41], O=[[90]])], {90: "o"})
    assert (path.ns, path.levels) == (1.5, 2)


def test_a_port_of_distributed_ram_is_read_by_its_own_address():
    """Addresses of other ports and of writes are not on the path to a port's data."""
    path = worst_path([
        cell("LUT1", I0=[2], O=[[40]]), cell("LUT1", I0=[40], O=[[41]]),
        cell("RAM64M8", ADDRA=[2], ADDRB=[41], ADDRH=[41], WCLK=[1], DOA=[[42]]),
        cell("LUT1", I0=[42], O=[[43]]), cell("LUT1", I0=[43], O=[[90]])], {90: "o"})
    assert (path.ns, path.levels) == (pytest.approx(0.9), 3)


@pytest.mark.parametrize(("output", "own", "other"), [("DPO", "DPRA", "A"), ("SPO", "A", "DPRA")])
def test_both_ports_of_a_small_distributed_ram_have_an_address(output, own, other):
    path = worst_path([
        cell("LUT1", I0=[2], O=[[40]]), cell("LUT1", I0=[40], O=[[41]]),
        cell("RAM128X1D", WCLK=[1], **{own: [2], other: [41], output: [[42]]}),
        cell("LUT1", I0=[42], O=[[90]])], {90: "o"})
    assert (path.ns, path.levels) == (pytest.approx(0.6), 2)


def test_loop_is_rejected():
    with pytest.raises(ValueError, match="loop"):
        worst_path([cell("LUT1", I0=[51], O=[[50]]), cell("LUT1", I0=[50], O=[[51]])], {})


def test_paths_that_differ_in_indices_only_are_one():
    paths = worst_paths(Flat([
        *(cell("LUT1", I0=[2], O=[[bit]]) for bit in (10, 11)), cell("LUT1", I0=[10], O=[[12]]),
        *(cell("FDRE", C=[1], D=[bit], Q=[[bit + 10]]) for bit in (10, 11, 12))],
        {2: "i", 20: "slow$1", 21: "slow$2", 22: "slower"}, inputs={2}), most=5)
    assert [(path.end, path.ns) for path in paths[:2]] == [("slower", 0.6), ("slow$1", 0.3)]
    assert "slow$2" not in {path.end for path in paths}


def test_blocks_are_joined():
    """From a register of one block through a LUT of the next one, and a wire through a third, to the first."""
    netlists = {
        "top": {"cells": [], "outputs": {}, "ports": {"clk": ["input", [1]]}, "names": {"between": [3]}, "blocks": [
            ["end", "@.end", {"clk": [1], "d": [4], "q": [2]}], ["logic", "@.logic", {"i": [2], "o": [3], "n": ["0"]}],
            ["wire", "@.wire", {"i": [3], "o": [4]}]]},
        "top.end": {"cells": [["FDRE", {"C": [5], "D": [6], "Q": [7]}]], "outputs": {"FDRE": ["Q"]}, "blocks": [],
                    "ports": {"clk": ["input", [5]], "d": ["input", [6]], "q": ["output", [7]]},
                    "names": {"held": [7]}},
        "top.logic": {"cells": [["LUT2", {"I0": [2], "I1": [9], "O": [8]}]], "outputs": {"LUT2": ["O"]}, "blocks": [],
                      "ports": {"i": ["input", [2]], "n": ["input", [9]], "o": ["output", [8]]}, "names": {"sum": [8]}},
        "top.wire": {"cells": [], "outputs": {}, "blocks": [], "names": {"i": [2], "o": [2]},
                     "ports": {"i": ["input", [2]], "o": ["output", [2]]}},
    }
    path = worst_paths(linked("top", netlists.__getitem__))[0]
    assert (path.ns, path.levels, path.start, path.end) == (0.3, 1, "end.held", "end.held")
    assert "logic.sum" in dict(path.via)
