"""Bits of storage in a netlist: every memory and register of an elaborated component."""

import re
from collections import Counter
from functools import cache

from weft.hdl.verilog import rtlil_text

MODULE = re.compile(r"^module (\S+)$")
MEMORY = re.compile(r"^\s*memory width (\d+) size (\d+) (\S+)$")
READ_PORT = re.compile(r"^\s*cell \$memrd(?:_v2)? ")
MEMORY_ID = re.compile(r'^\s*parameter \\MEMID "(\S+)"$')
FLIP_FLOP = re.compile(r"^\s*cell \$(?:s?a?dffe?|sdffe?|sdffce|adffe?) ")
WIDTH = re.compile(r"^\s*parameter \\WIDTH (\d+)$")
SERIAL = re.compile(r"\$\d+")


def storage(component, params, *, copies=False, **options):
    """Return bits by module and memory, ``{(module, memory or None): bits}``; None: the module's registers.

    ``component(params, **options)`` is elaborated, once for the same arguments. With ``copies`` a memory counts once
    for each of its read ports, as an FPGA implements it with block RAM that has one write and one read port.
    """
    total = Counter()
    for (module, memory), (bits, ports) in _netlist(component, params, tuple(sorted(options.items()))).items():
        name = memory and SERIAL.sub("", memory)
        total[SERIAL.sub("", module), name] += bits * (max(1, ports) if copies else 1)
    return total


@cache
def _netlist(component, params, options):
    """Return ``{(module, memory or None): [bits, read ports]}`` with the names of the netlist."""
    found, module, cell = {}, None, None
    for line in rtlil_text(component(params, **dict(options)), "top").splitlines():
        if match := MODULE.match(line):
            module = match[1].lstrip("\\").removeprefix("top.")
        elif match := MEMORY.match(line):
            found[module, match[3].lstrip("\\")] = [int(match[1]) * int(match[2]), 0]
        elif READ_PORT.match(line):
            cell = "read port"
        elif FLIP_FLOP.match(line):
            cell = "register"
        elif cell == "read port" and (match := MEMORY_ID.match(line)):
            found[module, match[1].lstrip("\\")][1] += 1
            cell = None
        elif cell == "register" and (match := WIDTH.match(line)):
            found.setdefault((module, None), [0, 0])[0] += int(match[1])
            cell = None
    return found
