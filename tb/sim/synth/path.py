"""Longest paths of a mapped netlist, with constant delays: an optimistic estimate without placement.

Constants: 0.30 ns for a LUT with its route, 0.12 for a wide multiplexer (MUXF), 0.02 for a bit of carry, 0.90 from the
clock of a block RAM to its read data. Registers and writes of distributed RAM take no time; a read of distributed RAM,
or of a shift register of LUTs, counts as a LUT. A port of distributed RAM is read by one address only: in RAM32M16 and
RAM64M8, DOA by ADDRA (ADDRH is the address of writes, which are clocked); in RAM128X1D, DPO by DPRA and SPO by A (AMD
UG974). A path begins and ends at a register, a memory or a port. Yosys maps every block separately and nothing is
placed: the estimate serves to compare two netlists, not to predict a frequency.
"""

import itertools
import re
from collections import defaultdict
from dataclasses import dataclass, field

LUT_NS, MUX_NS, CARRY_BIT_NS, BLOCK_RAM_NS = 0.30, 0.12, 0.02, 0.90
CONSTANTS = (f"{LUT_NS:.2f} ns a LUT with its route, {MUX_NS:.2f} a MUXF, {CARRY_BIT_NS:.2f} a bit of carry, "
             f"{BLOCK_RAM_NS:.2f} a block RAM")
JOIN = "join"           # of two bits that are the same net: a pseudo cell

_LUT = re.compile(r"LUT\d|INV$|BUF$")
_BLOCK_RAM = re.compile(r"RAMB|URAM")
_ADDRESS = re.compile(r"(ADDR|DPRA|A)[A-H]?\d*$")
_OF_PORT = re.compile(r"DO[A-H]$|[DS]PO$")
_DISTRIBUTED = re.compile(r"RAM\d+")


@dataclass(frozen=True)
class Path:
    """Longest path.

    ``start`` and ``end`` are names of the nets that the register or memory drives there, or of a port. An end without a
    name is named after the nearest named net on the path.
    """

    ns: float
    levels: int          # LUTs on the path
    start: str
    end: str
    via: tuple = ()      # (named net, arrival time in ns) from first to last


@dataclass
class Flat:
    """Netlist without blocks. ``cells``: ``[(type, {pin: [bit]}, output pins)]``; ``names``: ``{bit: signal}``."""

    cells: list = field(default_factory=list)
    names: dict = field(default_factory=dict)
    inputs: set = field(default_factory=set)
    outputs: set = field(default_factory=set)


def linked(top, netlist):
    """Return the flat netlist of module ``top`` and everything below it.

    ``netlist(module)`` returns a netlist of :mod:`weft.tb.sim.synth.mapped`. Names of signals have the path of
    instances below ``top`` as prefix, joined by dots.
    """
    flat, count = Flat(), itertools.count()

    def place(module, prefix, outside):
        """Insert a module; ``outside`` is ``{port: bits}`` of its surroundings, or None for the top module."""
        found, inside = netlist(module), {}
        for port, (direction, bits) in found["ports"].items():
            wanted = outside.get(port, [None] * len(bits)) if outside is not None else [None] * len(bits)
            for bit, other in zip(bits, wanted, strict=True):
                if isinstance(bit, str):
                    continue
                if bit not in inside:
                    inside[bit] = next(count) if other is None else other
                elif other is not None and direction == "output":
                    flat.cells.append((JOIN, {"A": [inside[bit]], "Y": [other]}, ("Y",)))
                if outside is None:
                    (flat.inputs if direction == "input" else flat.outputs).add(inside[bit])

        def here(bits):
            for bit in bits:
                if not isinstance(bit, str) and bit not in inside:
                    inside[bit] = next(count)
            return [bit if isinstance(bit, str) else inside[bit] for bit in bits]

        for kind, pins in found["cells"]:
            flat.cells.append((kind, {pin: here(bits) for pin, bits in pins.items()}, found["outputs"][kind]))
        for instance, child, pins in found["blocks"]:
            place(child.replace("@", module, 1), f"{prefix}{instance}.",
                  {pin: here(bits) for pin, bits in pins.items()})
        # A net has the name it has in the module that drives it. Short names first: long ones are parts and copies.
        entering = set() if outside is None else {
            bit for direction, bits in found["ports"].values() if direction == "input" for bit in bits}
        for signal, bits in sorted(found["names"].items(), key=lambda item: len(item[0])):
            for bit in bits:
                if bit in inside and bit not in entering:
                    flat.names.setdefault(inside[bit], prefix + signal)

    place(top, "", None)
    return flat


def worst_paths(flat, most=1):
    """Return the longest paths, worst first, one per kind: paths whose ends differ only in numbers are of one kind.

    Raise ``ValueError`` if there is a combinational loop.
    """
    arcs, starts, ends = _timing(flat)
    arrival, before = _arrivals(arcs, starts)
    found, kinds = [], set()
    for last in sorted(ends.keys() & arrival.keys(), key=arrival.get, reverse=True):
        path = _trace(last, ends[last], flat.names, arrival, before)
        kind = re.sub(r"\d+", "#", f"{path.start} {path.end}")
        if kind not in kinds:
            kinds.add(kind)
            found.append(path)
            if len(found) == most:
                break
    return found


def _trace(last, place, names, arrival, before):
    steps, levels, bit = [], 0, last
    while bit is not None:
        steps.append((names.get(bit, ""), round(arrival.get(bit, 0.0), 3)))
        bit, is_lut = before[bit]
        levels += is_lut
    via = [next(group) for name, group in itertools.groupby(reversed(steps), key=lambda step: step[0]) if name]
    end = names.get(place, "") or (via[-1][0] if via else "")
    return Path(round(arrival[last], 3), levels, via[0][0] if via else end, end, tuple(via))


def _timing(flat):
    """Return ``{output bit: [(input bit, ns, is LUT)]}``, ``{first bit: ns}``, ``{last bit: naming bit}``."""
    arcs, starts = defaultdict(list), dict.fromkeys(flat.inputs, 0.0)
    ends = {bit: bit for bit in flat.outputs}
    for kind, pins, driven in flat.cells:
        if kind.startswith("CARRY"):
            _carry(pins, arcs)
            continue
        inputs = [bit for pin, bits in pins.items() if pin not in driven for bit in bits if not isinstance(bit, str)]
        outputs = [bit for pin in driven for bit in pins.get(pin, ())]
        if _LUT.match(kind) or kind.startswith("MUXF") or kind == JOIN:
            ns = LUT_NS if _LUT.match(kind) else MUX_NS if kind != JOIN else 0.0
            for output in outputs:
                arcs[output] += [(bit, ns, ns == LUT_NS) for bit in inputs]
            continue
        if _BLOCK_RAM.match(kind):
            starts.update(dict.fromkeys(outputs, BLOCK_RAM_NS))
        else:                                               # registers; unknown cells count as registers
            starts.update(dict.fromkeys(outputs, 0.0))
        if _DISTRIBUTED.match(kind) or kind.startswith("SRL"):
            for pin in driven:
                read_by = _read_by(pin)
                addresses = [bit for name, bits in pins.items() if read_by.match(name) for bit in bits]
                for output in pins.get(pin, ()):
                    arcs[output] += [(bit, LUT_NS, True) for bit in addresses]
        for bit in inputs:
            ends.setdefault(bit, outputs[0] if outputs else None)
    return arcs, starts, ends


def _read_by(pin):
    """Return the pattern of the address pins by which this output of distributed RAM is read."""
    if not _OF_PORT.match(pin):
        return _ADDRESS
    address = {"DPO": "DPRA", "SPO": "A"}.get(pin, f"ADDR{pin[-1]}")
    return re.compile(rf"{address}\d*$")


def _carry(pins, arcs):
    """Add arcs from every input of a carry chain to all outputs above it."""
    for pin in ("O", "CO"):
        for at, output in enumerate(pins.get(pin, ())):
            for source in ("DI", "S"):
                arcs[output] += [(bit, CARRY_BIT_NS * (at - low + 1), False)
                                 for low, bit in enumerate(pins[source][:at + 1])]
            arcs[output] += [(bit, CARRY_BIT_NS * (at + 1), False)
                             for source in ("CI", "CYINIT", "CI_TOP") for bit in pins.get(source, ())]


def _arrivals(arcs, starts):
    """Return the arrival time of each bit, and ``{bit: (previous bit on its longest path, passes a LUT)}``."""
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
