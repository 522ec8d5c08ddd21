"""The estimate of a path: on netlists small enough to add up by hand."""

import json

import pytest

from weft.tb.flow.path import worst_path


def cell(kind, **pins):
    """Pins that drive are written as lists of a list: ``O=[[5]]``."""
    return {"type": kind, "connections": {pin: bits[0] if isinstance(bits[0], list) else bits
                                          for pin, bits in pins.items()},
            "port_directions": {pin: "output" if isinstance(bits[0], list) else "input" for pin, bits in pins.items()}}


def netlist(cells, names):
    return json.dumps({"modules": {"top": {
        "ports": {"i": {"direction": "input", "bits": [2]}, "o": {"direction": "output", "bits": [90]}},
        "cells": {str(index): each for index, each in enumerate(cells)},
        "netnames": {name: {"bits": bits} for name, bits in names.items()}}}})


def test_luts_and_multiplexers_add_up():
    path = worst_path(netlist([
        cell("FDRE", C=[1], D=[2], Q=[[10]]), cell("LUT2", I0=[10], I1=[2], O=[[11]]),
        cell("MUXF7", I0=[11], I1=[2], S=[2], O=[[12]]), cell("LUT1", I0=[12], O=[[13]]),
        cell("FDRE", C=[1], D=[13], CE=["1"], Q=[[14]])], {"a.from": [10], "$x": [12], "a.to": [14]}), "top")
    assert (path.ns, path.levels, path.ends) == (0.72, 2, ("a.from", "a.to"))


def test_carry_counts_by_bits():
    """From bit 1 of a chain to its end, and on to bit 2 of the next: three bits each."""
    chain = {"DI": ["0"] * 4, "CYINIT": ["0"]}
    path = worst_path(netlist([
        cell("CARRY4", CI=["0"], S=["0", 2, "0", "0"], O=[[20, 21, 22, 23]], CO=[[24, 25, 26, 27]], **chain),
        cell("CARRY4", CI=[27], S=["0"] * 4, O=[[30, 31, 90, 33]], CO=[[34, 35, 36, 37]], **chain)],
        {"o": [90]}), "top")
    assert (path.ns, path.levels) == (pytest.approx(0.02 * (3 + 3)), 0)


def test_memories():
    """A block RAM starts a path late; reading distributed RAM is a LUT, writing it ends one."""
    path = worst_path(netlist([
        cell("RAMB36E2", ADDRARDADDR=[2], CLKARDCLK=[1], DOUTADOUT=[[40]]),
        cell("RAM64M8", ADDRA=[40], DIA=[2], WCLK=[1], DOA=[[41]]), cell("LUT1", I0=[41], O=[[90]])],
        {"o": [90]}), "top")
    assert (path.ns, path.levels) == (1.5, 2)


def test_a_loop_is_refused():
    with pytest.raises(ValueError, match="loop"):
        worst_path(netlist([cell("LUT1", I0=[51], O=[[50]]), cell("LUT1", I0=[50], O=[[51]])], {}), "top")
