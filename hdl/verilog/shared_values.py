"""Expressions that stay shared when Amaranth transforms a design.

Amaranth makes one cell of an expression, however often it is used, also by bits. But before that, it renames and lowers
the clock domains of a design, and copies each expression for each use: a mask whose 64 bits are used one by one becomes
64 masks. With the replacements, a transformation of a fragment makes one copy of an expression. Fragments share none,
because a cell belongs to one module.
"""

import contextlib
from importlib.metadata import version

from amaranth.hdl import _xfrm

from .lean_netlist import KNOWN

_on_value, _on_fragment = _xfrm.ValueVisitor.on_value, _xfrm.FragmentTransformer.on_fragment
_MADE = "_weft_made"     # attribute of a transformer: {id: (expression, its copy)} of the fragment


def _shared_value(self, value):
    made = getattr(self, _MADE, None)
    if made is None:
        return _on_value(self, value)
    if id(value) not in made:
        made[id(value)] = value, _on_value(self, value)     # the expression is kept, so that its id stays unique
    return made[id(value)][1]


def _separate_fragment(self, fragment):
    outer = getattr(self, _MADE, None)
    setattr(self, _MADE, {})
    try:
        return _on_fragment(self, fragment)
    finally:
        setattr(self, _MADE, outer)


@contextlib.contextmanager
def in_place(of=KNOWN):
    """Install the replacements in this context if Amaranth's version is one ``of`` these."""
    if version("amaranth") not in of:
        yield
        return
    _xfrm.ValueTransformer.on_value, _xfrm.FragmentTransformer.on_fragment = _shared_value, _separate_fragment
    try:
        yield
    finally:
        del _xfrm.ValueTransformer.on_value
        _xfrm.FragmentTransformer.on_fragment = _on_fragment
