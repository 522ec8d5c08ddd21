"""Faster replacements for the per-bit functions of Amaranth's netlist, with the same result.

Amaranth checks the type of each bit of a value whenever a value is made: seventeen million times for a card.
"""

import contextlib
import itertools
from importlib.metadata import version

from amaranth.back import rtlil
from amaranth.hdl import _nir
from amaranth.hdl._nir import Net, Value

KNOWN = ("0.5.10",)      # versions of Amaranth with this netlist
_tuple, _int = tuple.__new__, int.__new__
_ORIGINAL_CHECK = _nir.Netlist.check_comb_cycles
_BIT_BY_BIT = ("&", "|", "^")
_CONSTANTS = Net(0), Net(1)
_CELL, _BIT = 16, 0xFFFF    # position of the cell number in a net; mask of its bit


def _from_cell(cls, cell, bit):
    return _int(cls, cell << _CELL | bit)


def _from_const(_cls, bit):
    return _CONSTANTS[bit]


def _value(cls, nets=()):
    return _tuple(cls, (nets,) if isinstance(nets, Net) else nets)


def _part(self, index):
    found = tuple.__getitem__(self, index)
    return _tuple(Value, found) if isinstance(index, slice) else found


def _resolve_value(self, value):
    connections, nets = self.connections, []
    for net in value:
        while net < 0:      # late: connected to another net
            net = connections[net]
        nets.append(net)
    return _tuple(Value, nets)


def _all_to_all(cell):
    """Return whether each output bit of an operator depends on all its input bits."""
    return type(cell) is _nir.Operator and (
        len(cell.inputs) == 1 and cell.operator != "~" or len(cell.inputs) == 2 and cell.operator not in _BIT_BY_BIT)


def _check_comb_cycles(self):
    """Check for combinational cycles, visiting each net, and the inputs of each operator, once.

    If there is a cycle, the original function reports it.
    """
    cells, connections = self.cells, self.connections
    checked, busy, looked_at = {0, 1}, set(), set()

    def sources(net):
        if net < 0:
            return iter((connections[net],))
        if net >> _CELL in looked_at:
            return iter(())
        return (source for source, _ in cells[net >> _CELL].comb_edges_to(net & _BIT))

    every = (net for index, cell in enumerate(cells) for net in cell.output_nets(index))
    for start in itertools.chain(every, *self.signals.values()):
        path = [] if start in checked else [(start, sources(start))]
        busy.update(net for net, _ in path)
        while path:
            net, left = path[-1]
            for source in left:
                if source in checked:
                    continue
                if source in busy:
                    return _ORIGINAL_CHECK(self)
                busy.add(source)
                path.append((source, sources(source)))
                break
            else:
                path.pop()
                busy.remove(net)
                checked.add(net)
                if net > 0 and _all_to_all(cells[net >> _CELL]):
                    looked_at.add(net >> _CELL)
    return None


def _sigspec(self, *parts):
    known, value = self.nets, []
    for part in parts:
        if isinstance(part, Net):
            value.append(part)
        else:
            value += part
    chunks, at, end = [], 0, len(value)
    while at < end:
        first = at
        if value[at] in (0, 1):
            while at < end and value[at] in (0, 1):
                at += 1
            chunks.append(f"{at - first}'" + "".join("1" if net else "0" for net in reversed(value[first:at])))
            continue
        wire, low = known[value[at]]
        bit = low
        while at < end and value[at] not in (0, 1) and known[value[at]] == (wire, bit):
            at, bit = at + 1, bit + 1
        chunks.append(f"{wire.name} [{low}]" if bit == low + 1 else f"{wire.name} [{bit - 1}:{low}]")
    return chunks[0] if len(chunks) == 1 else "{ " + " ".join(reversed(chunks)) + " }"


_PLACES = (      # class, name, replacement
    (_nir.Net, "from_cell", classmethod(_from_cell)),
    (_nir.Net, "from_const", classmethod(_from_const)),
    (_nir.Value, "__new__", _value),
    (_nir.Value, "__getitem__", _part),
    (_nir.Netlist, "resolve_value", _resolve_value),
    (_nir.Netlist, "check_comb_cycles", _check_comb_cycles),
    (rtlil.ModuleEmitter, "sigspec", _sigspec),
)


@contextlib.contextmanager
def in_place(of=KNOWN):
    """Install the replacements in this context if Amaranth's version is one ``of`` these."""
    with contextlib.ExitStack() as undo:
        for owner, name, what in _PLACES if version("amaranth") in of else ():
            undo.callback(setattr, owner, name, vars(owner)[name])
            setattr(owner, name, what)
        yield
