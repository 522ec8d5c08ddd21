"""The longest path of a mapped netlist, by constants: an estimate without placement, and an optimistic one.

Constants: 0.30 ns for a LUT with its route, 0.12 for a wide multiplexer (MUXF), 0.02 for a bit of carry, 0.90 from the
clock of a block RAM to what is read. Registers and distributed RAM that is written take nothing; reading distributed
RAM, and a shift register of LUTs, is a LUT. A path begins and ends at a register, a memory or a port. Yosys maps
every block by itself and nothing is placed: two netlists can be compared, a frequency is not promised.
"""

import json
import re
from collections import defaultdict
from dataclasses import dataclass

LUT_NS, MUX_NS, CARRY_BIT_NS, BLOCK_RAM_NS = 0.30, 0.12, 0.02, 0.90
CONSTANTS = (f"{LUT_NS:.2f} ns a LUT with its route, {MUX_NS:.2f} a MUXF, {CARRY_BIT_NS:.2f} a bit of carry, "
             f"{BLOCK_RAM_NS:.2f} a block RAM")

_LUT = re.compile(r"LUT\d|INV$|BUF$")
_BLOCK_RAM = re.compile(r"RAMB|URAM")
_ADDRESS = re.compile(r"(ADDR|DPRA|A)[A-H]?\d*$")
_DISTRIBUTED = re.compile(r"RAM\d+")


@dataclass(frozen=True)
class Path:
    """``ns`` of the longest path, LUTs on it, and where it begins and ends: what a register or a memory drives there,
    or a port. An end without a name of its own is called by the nearest net on the path that has one."""

    ns: float
    levels: int
    ends: tuple


def worst_path(netlist, top):
    """The longest path of module ``top`` in Yosys' JSON, flat and mapped to cells of Xilinx.

    Raises
    ------
    ValueError
        If there is a loop of logic.
    """
    module = json.loads(netlist)["modules"][top]
    names = {}
    for name, net in sorted(module["netnames"].items(), key=lambda item: ("$" in item[0], len(item[0]))):
        for bit in net["bits"]:
            names.setdefault(bit, name)
    arcs, starts, ends = _timing(module)
    arrival, before = _arrivals(arcs, starts)
    last = max(ends.keys() & arrival.keys(), key=arrival.get, default=None)
    if last is None:
        return Path(0.0, 0, ("", ""))
    nets, levels, bit = [names.get(ends[last], "")], 0, last
    while bit is not None:
        nets.append(names.get(bit, ""))
        bit, is_lut = before[bit]
        levels += is_lut
    named = [net for net in nets if net and "$" not in net]
    return Path(round(arrival[last], 3), levels, (named[-1], named[0]) if named else ("", ""))


def _timing(module):
    """``{output bit: [(input bit, ns, is LUT)]}``, ``{first bit: ns}``, ``{last bit: a bit that names the place}``."""
    arcs, starts, ends = defaultdict(list), {}, {}
    for port in module["ports"].values():
        if port["direction"] == "input":
            starts.update(dict.fromkeys(port["bits"], 0.0))
        else:
            ends.update(zip(port["bits"], port["bits"], strict=True))
    for cell in module["cells"].values():
        kind, pins = cell["type"], cell["connections"]
        if kind.startswith("CARRY"):
            _carry(pins, arcs)
            continue
        inputs = [bit for pin, bits in pins.items() if cell["port_directions"][pin] == "input" for bit in bits]
        outputs = [(pin, bit) for pin, bits in pins.items() if cell["port_directions"][pin] == "output" for bit in bits]
        if _LUT.match(kind):
            for _, output in outputs:
                arcs[output] += [(bit, LUT_NS, True) for bit in inputs]
        elif kind.startswith("MUXF"):
            for _, output in outputs:
                arcs[output] += [(bit, MUX_NS, False) for bit in inputs]
        elif _BLOCK_RAM.match(kind):
            starts.update((bit, BLOCK_RAM_NS) for _, bit in outputs)
            ends.update(dict.fromkeys(inputs, outputs[0][1] if outputs else None))
        elif _DISTRIBUTED.match(kind) or kind.startswith("SRL"):
            addresses = [bit for pin, bits in pins.items() if _ADDRESS.match(pin) for bit in bits]
            for _, output in outputs:
                starts[output] = 0.0
                arcs[output] += [(bit, LUT_NS, True) for bit in addresses]
            ends.update(dict.fromkeys(inputs, outputs[0][1] if outputs else None))
        else:                                               # registers; what else there is counts as one
            starts.update((bit, 0.0) for _, bit in outputs)
            ends.update(dict.fromkeys(inputs, outputs[0][1] if outputs else None))
    return arcs, starts, {bit: where for bit, where in ends.items() if not isinstance(bit, str)}


def _carry(pins, arcs):
    """Every input of a carry chain leads to all outputs above it."""
    for pin in ("O", "CO"):
        for at, output in enumerate(pins.get(pin, ())):
            for source in ("DI", "S"):
                arcs[output] += [(bit, CARRY_BIT_NS * (at - low + 1), False)
                                 for low, bit in enumerate(pins[source][:at + 1])]
            arcs[output] += [(bit, CARRY_BIT_NS * (at + 1), False)
                             for source in ("CI", "CYINIT", "CI_TOP") for bit in pins.get(source, ())]


def _arrivals(arcs, starts):
    """When each bit is there at the latest, and by which bit and whether through a LUT."""
    arrival, before = dict(starts), dict.fromkeys(starts, (None, False))
    users, missing = defaultdict(list), {}
    for target, inputs in arcs.items():
        waits = {source for source, _, _ in inputs if source in arcs}
        missing[target] = len(waits)
        for source in waits:
            users[source].append(target)
    ready = [target for target, count in missing.items() if not count]
    done = 0
    while ready:
        target = ready.pop()
        done += 1
        ns, source, is_lut = max(((arrival.get(source, 0.0) + ns, source, is_lut) for source, ns, is_lut in arcs[target]
                                  if not isinstance(source, str)), key=lambda item: item[0], default=(0.0, None, False))
        arrival[target], before[target] = ns, (source if source in before else None, is_lut)
        for user in users[target]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    if done < len(arcs):
        raise ValueError("a loop of logic")
    return arrival, before
