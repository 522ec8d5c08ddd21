"""Facts read from Verilog text that Amaranth wrote: ports, and signals without a name in the source."""

import re

_PORT = re.compile(r"^\s*(input|output)\s+(?:wire\s+|reg\s+|logic\s+)?(?:\[(\d+):0\]\s*)?\\?([\w$.]+)\s*[;,)]?\s*$",
                   re.MULTILINE)
_UNNAMED = re.compile(r"  (?:wire|reg) (?:signed )?(?:\[[\d:]+\] )?\\\$\d+ ")


def top_ports(text, top):
    """Return the ports of module ``top`` in Verilog text, one declaration per line: ``{name: (direction, width)}``."""
    found = re.search(rf"^module \\?{re.escape(top)}\s*[(#;].*?^endmodule", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"no module {top!r} in the Verilog text")
    return {name: (direction, int(high or 0) + 1) for direction, high, name in _PORT.findall(found[0])}


def by_number(name):
    """Return a sort key that orders ``x_10`` after ``x_9``."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def unnamed(text):
    """Return the line ranges of Verilog text that declare unnamed signals, more than half of all signals."""
    ranges = []
    for number, line in enumerate(text.splitlines(), 1):
        if _UNNAMED.match(line):
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
    return ranges
